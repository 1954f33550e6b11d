"""Features of a table of patches: their files, and their reader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.features.store import FEATURES, coordinates_sha256, patch_names, read_features
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import file_of, identify_slide

_THREADS = 8
NUM_IMAGE_FILES = 16
"""Number of files for features of image patches, divided by a digest of the patches' names."""
PLACE = ("y", "x", "mpp", "side_px", "slide_mpp")
"""Columns that decide a patch's place in its file."""


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
    places = rows[list(PLACE)].to_numpy(np.float64)
    return coordinates_sha256(places, patch_names(rows["patch_id"].tolist()))


def rows_by_file(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Rows of each file, in the order of the file, without repeated patches."""
    rows = rows.drop_duplicates("patch_id").sort_values("patch_id", kind="stable")
    return {
        str(name): part.reset_index(drop=True) for name, part in rows.groupby(files_of_rows(rows), sort=True)
    }


def source_files(rows: pd.DataFrame) -> list[Path]:
    """Source files of one features file: the slide, or each image or zip once."""
    return list(dict.fromkeys(file_of(Path(path)) for path in rows["path"].unique()))


def source_digests(rows: pd.DataFrame) -> dict[Path, str]:
    """Digest of samples of each of `source_files`, read by several threads.

    Raises:
        InputError: a file cannot be read.
    """
    files = source_files(rows)
    try:
        with ThreadPoolExecutor(_THREADS) as pool:  # reading waits for the disk
            return dict(zip(files, pool.map(_sample_sha256, files), strict=True))
    except OSError as error:
        raise InputError(
            f"{error.filename}: cannot be read ({error.strerror}). Fix: restore the file."
        ) from None


def images_sha256(digests: Iterable[str]) -> str:
    """Digest of several images, by the digests of their samples."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def check_features(folder: Path, rows: pd.DataFrame, patch_ids: pd.Series, **expected: str | float) -> None:
    """Compare the features files of some patches with the current slides, images and places of the patches.

    Args:
        folder: argument of `features_of_rows`.
        rows: all rows of the tables that the features belong to.
        patch_ids: names of the patches whose files are compared.
        expected: argument of `read_features`.

    Raises:
        InputError: a file is missing, or was made from something else; names the file.
    """
    asked = set(patch_ids)
    parts = {
        name: part for name, part in rows_by_file(rows).items() if not asked.isdisjoint(part["patch_id"])
    }
    digest_of = source_digests(pd.concat(parts.values())) if parts else {}
    for name, part in parts.items():
        digests = [digest_of[path] for path in source_files(part)]
        source = images_sha256(digests) if part["y"].isna().any() else digests[0]
        path, places = folder / f"{name}.h5", rows_sha256(part)
        read_features(path, view="", stage=0, slide_sha256=source, coordinates_sha256=places, **expected)


def features_of_rows(
    folder: Path, rows: pd.DataFrame, *, view: str = "", stage: int = 0, **expected: str | float
) -> NDArray[Any]:
    """Features of every row, in the order of the table.

    Args:
        folder: `patches` in the folder of an encoder's features.
        rows: A table of patches.
        view: As of `read_features`.
        stage: As of `read_features`.
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
        content = read_features(path, view=view, stage=stage, **expected)
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


def _sample_sha256(path: Path) -> str:
    return identify_slide(path).sample_sha256


def _bucket(name: str) -> str:
    return f"{hashlib.sha256(name.encode()).digest()[0] % NUM_IMAGE_FILES:02d}"
