"""Stored features of patches from the stage `features`, so that later stages need not encode the patches again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.features.tables import check_features, features_of_rows
from histo_monai.data.tables.patches import read_patches
from histo_monai.finetuning.depth import WHOLE, DepthFeatures
from histo_monai.models.checkpoint import read_description
from histo_monai.pipeline import paths
from histo_monai.pipeline.imports import modules_sha256
from histo_monai.pipeline.params import Params
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import file_sha256

_LOG = logging.getLogger(__name__)

OF_MODEL = "features"
"""Key of a model's description: SHA-256 of the encoder whose features its head was fitted to."""
PATCHES = "patches"
"""Folder of the patches of tables, in the folder of an encoder's features."""
_MODULES = tuple(
    f"histo_monai.wsi.inference.{name}" for name in ("features", "slides", "statistics", "table_features")
)
"""Names of the modules that compute features; a stage that reads features does not depend on their code."""


def features_code_sha256() -> str:
    """Digest of the code that computes features, as the files record it."""
    return modules_sha256(*_MODULES)


@dataclass(frozen=True)
class StoredRows:
    """Stored features of the rows of data/index/patches.csv and unlabeled.csv, by one encoder.

    Attributes:
        folder: of the patches of tables.
        encoder: file of the encoder, with the batch-norm statistics in use.
        encoder_sha256: digest of the file.
        depth: number of stages of the encoder; None for the whole encoder.
        patch_px: side of the patches.
    """

    folder: Path
    encoder: Path
    encoder_sha256: str
    depth: int | None
    patch_px: int

    @classmethod
    def of_encoder(cls, params: Params, method: str, encoder: int) -> Self:
        """Features by the encoder of a pretraining, as the stage `features` computes them.

        Raises:
            InputError: there are none.
        """
        folder = paths.features_folder(method, encoder)
        file = folder / paths.ENCODER
        if not file.is_file():
            raise InputError(f"{folder}: no features of patches. Fix: run the stage features.")
        return cls(folder / PATCHES, file, file_sha256(file), params.features.depth, params.patch_px)

    def check_model(self, path: Path) -> None:
        """Refuse a model whose head was not fitted to these features.

        Raises:
            InputError: names the model.
        """
        if read_description(path.with_suffix(".json")).get(OF_MODEL) != self.encoder_sha256:
            raise InputError(
                f"{path}: its head was not fitted to {self.folder}. Fix: run the stages finetune and consistency again."
            )

    def check(self, rows: pd.DataFrame) -> None:
        """Compare the files of some rows with their slides, patches, encoder, side, depth and code now.

        Raises:
            InputError: a file is missing, or was made from something else; names the file.
        """
        indexed = pd.concat(
            [read_patches(paths.PATCHES_CSV), read_patches(paths.UNLABELED_CSV)], ignore_index=True
        )
        expected = {**self._expected, "code_sha256": features_code_sha256()}
        check_features(self.folder, indexed, rows["patch_id"], **expected)

    def of(self, rows: pd.DataFrame) -> NDArray[np.float32]:
        """Features of rows, Shape (n, D), float32.

        Raises:
            InputError: a file is missing, or of another encoder; or it lacks a patch.
        """
        return features_of_rows(self.folder, rows, **self._expected).astype(np.float32)

    @property
    def _expected(self) -> dict[str, Any]:
        about = {"encoder_sha256": self.encoder_sha256, "patch_px": self.patch_px}
        return {**about, "depth": self.depth or 0}


def stored_features(
    params: Params, method: str, encoder: int, tables: Mapping[str, pd.DataFrame]
) -> dict[str, DepthFeatures] | None:
    """Features of several tables of patches by the whole pretrained encoder; None, with the reason in the log.

    They are used only if they are current and have the batch-norm statistics of the pretraining.

    Args:
        tables: any name -> rows of data/index/patches.csv or unlabeled.csv.
    """
    try:
        stored = StoredRows.of_encoder(params, method, encoder)
        pretrained = paths.encoder_folder(method, encoder) / paths.ENCODER
        if stored.depth is not None or stored.encoder_sha256 != file_sha256(pretrained):
            raise InputError(f"{stored.folder}: depth or batch-norm statistics differ")
        stored.check(pd.concat(list(tables.values())))
        return {name: {WHOLE: stored.of(rows)} for name, rows in tables.items()}
    except InputError as error:
        _LOG.info("features: encoding patches, stored features do not apply: %s", error)
        return None
