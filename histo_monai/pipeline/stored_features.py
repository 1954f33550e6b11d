"""Features of patches that the stage `features` has stored, for stages that would encode the patches again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from histo_monai.data.features.tables import check_features, features_of_rows
from histo_monai.data.tables.patches import read_patches
from histo_monai.finetuning.depth import WHOLE, DepthFeatures
from histo_monai.pipeline import paths
from histo_monai.pipeline.imports import modules_sha256
from histo_monai.pipeline.params import Params
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import file_sha256

_LOG = logging.getLogger(__name__)

PATCHES = "patches"
"""Folder of the patches of tables, in the folder of an encoder's features."""
_MODULES = tuple(
    f"histo_monai.wsi.inference.{name}" for name in ("features", "slides", "statistics", "table_features")
)
"""Modules that compute features, by name: a stage that reads features does not depend on their code."""


def features_code_sha256() -> str:
    """Digest of the code that computes features, as the files record it."""
    return modules_sha256(*_MODULES)


def stored_features(
    params: Params, folder: Path, encoder: Path, tables: Mapping[str, pd.DataFrame]
) -> dict[str, DepthFeatures] | None:
    """Features of the patches of several tables by the whole encoder; None, with the reason in the log, without them.

    Files count only if the stage `features` would keep them: equal encoder, slides, patches, side, depth and code.

    Args:
        folder: of the encoder's features.
        encoder: file of the encoder with the batch-norm statistics in use.
        tables: rows of data/index/patches.csv or unlabeled.csv, by any name.
    """
    if not folder.is_dir():
        return None
    indexed = pd.concat(
        [read_patches(paths.PATCHES_CSV), read_patches(paths.UNLABELED_CSV)], ignore_index=True
    )
    expected: dict[str, Any] = {
        "encoder_sha256": file_sha256(encoder),
        "side_px": params.patch_px,
        "depth": 0,
    }
    try:
        names = pd.concat(list(tables.values()))["patch_id"]
        check_features(folder / PATCHES, indexed, names, **expected, code_sha256=features_code_sha256())
        features = {
            name: features_of_rows(folder / PATCHES, rows, **expected).astype(np.float32)
            for name, rows in tables.items()
        }
    except InputError as error:
        _LOG.info("features: %s is not used, patches are encoded: %s", folder, error)
        return None
    return {name: {WHOLE: values} for name, values in features.items()}
