"""Features of the rows of a table of patches: in which file they lie, and how they are read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.features.store import FEATURES, coordinates_sha256, patch_names, read_features
from histo_monai.utils.errors import InputError

NUM_IMAGE_FILES = 16
"""Files over which patches that are whole images are spread, by a digest of their names."""
_PLACE = ("y", "x", "mpp", "side_px", "slide_mpp")


def files_of_rows(rows: pd.DataFrame) -> NDArray[np.str_]:
    """Name of the file of each row: squares lie with their slide, images in one of `NUM_IMAGE_FILES` files.

    A name depends on the row alone, so that new rows change no other file.
    """
    return np.array(
        [
            f"images/{_bucket(name)}" if np.isnan(y) else f"slides/{slide_id or Path(path).stem}"
            for name, y, slide_id, path in zip(
                rows["patch_id"], rows["y"], rows["slide_id"], rows["path"], strict=True
            )
        ],
        dtype=np.str_,
    )


def rows_sha256(rows: pd.DataFrame) -> str:
    """Digest of names and places of the patches of a file; labels do not enter."""
    places = rows[list(_PLACE)].to_numpy(np.float64)
    return coordinates_sha256(places, patch_names(rows["patch_id"].tolist()))


def features_of_rows(
    folder: Path, rows: pd.DataFrame, *, view: str = "", **expected: str | float
) -> NDArray[Any]:
    """Features of every row, in the order of the table.

    Args:
        folder: `patches` in the folder of an encoder's features.
        rows: A table of patches.
        view: As of `read_features`.
        expected: As of `read_features`.

    Returns:
        Shape (n, D), in the precision of the files.

    Raises:
        InputError: A file is missing, or of another encoder; or it lacks a patch. Names the file.
    """
    names = files_of_rows(rows)
    parts: list[NDArray[Any]] = []
    order: list[NDArray[np.intp]] = []
    for name in np.unique(names):
        path = folder / f"{name}.h5"
        content = read_features(path, view=view, **expected)
        number = {patch_id: i for i, patch_id in enumerate(content.patch_id)}
        which = np.flatnonzero(names == name)
        asked = rows["patch_id"].iloc[which].tolist()
        missing = [patch_id for patch_id in asked if patch_id not in number]
        if missing:
            raise InputError(
                f"{path}: no {FEATURES} of patch {missing[0]} and {len(missing) - 1} more. Fix: run the features "
                "stage."
            )
        parts.append(content.features[[number[patch_id] for patch_id in asked]])
        order.append(which)
    if not parts:
        raise ValueError("no rows")
    together = np.concatenate(parts)
    sorted_again = np.empty_like(together)
    sorted_again[np.concatenate(order)] = together
    return sorted_again


def _bucket(name: str) -> str:
    return f"{hashlib.sha256(name.encode()).digest()[0] % NUM_IMAGE_FILES:02d}"
