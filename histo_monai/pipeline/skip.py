"""Empty outputs of a stage without input, with the reason in metrics.json.

`dvc repro` then completes although some stages have no data; slide labels alone need no labeled patches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib import image

from histo_monai.data.tables.columns import PATCH_COLUMNS
from histo_monai.pipeline import paths
from histo_monai.pipeline.params import Params
from histo_monai.pipeline.provenance import made_from, write_metrics
from histo_monai.utils.storage import read_json, whole_folder, write_json

_LOG = logging.getLogger(__name__)

REASON = "nothing_done"
"""Key of the reason in metrics.json."""
NO_PATCHES = "no patch is labeled: no training and no prediction"


def has_patches() -> bool:
    """Whether data/index/patches.csv has rows, or is no table (its reader reports that)."""
    path = paths.PATCHES_CSV
    if not path.is_file():
        return True
    header = ",".join(PATCH_COLUMNS).encode()
    with path.open("rb") as file:
        return file.readline(len(header) + 2).strip() != header or bool(file.read(1))


def leave_empty(
    folder: Path,
    params: Params,
    why: str,
    *,
    read: Path = paths.PATCHES_CSV,
    files: Iterable[str] = (),
    folders: Iterable[str] = (),
) -> None:
    """Write the output folder of a stage without input.

    Args:
        why: reason for metrics.json.
        read: table that shows the missing input.
        files: models (.safetensors, with .json), .json, .csv, .png, beside metrics.json and summary.json.
    """
    with whole_folder(folder) as draft:
        for name in folders:
            (draft / name).mkdir()
        for name in files:
            path = draft / name
            if path.suffix == ".safetensors":
                from histo_monai.models.checkpoint import save_model  # imports torch

                save_model(path, {}, {"kind": "none", REASON: why})
            elif path.suffix == ".json":
                write_json(path, {REASON: why})
            elif path.suffix == ".png":
                image.imsave(path, np.full((1, 1, 3), 255, np.uint8))
            else:
                path.write_text(f"{REASON}\n", encoding="utf-8")
        provenance = made_from(params, [read])
        write_metrics(draft, {REASON: why}, provenance, summary={})
    _LOG.log(logging.WARNING if why == NO_PATCHES else logging.INFO, "%s: %s", folder, why)


def why_idle(folder: Path) -> str:
    """Reason of an empty output folder; empty text for a stage with results.

    Raises:
        InputError: metrics.json is missing or cannot be read.
    """
    return str(read_json(folder / paths.METRICS, "run its stage again", {f"{REASON}?": str}).get(REASON, ""))
