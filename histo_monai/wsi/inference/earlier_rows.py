"""Features of patches that an earlier file holds, so that new patches of a slide encode no old one again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.features.store import mapped
from histo_monai.data.features.tables import PLACE, source_digests
from histo_monai.utils.files.hdf5 import open_hdf5
from histo_monai.utils.storage import file_of
from histo_monai.wsi.heatmaps.origin import Origin

PATCH_SHA256 = "patch_sha256"
"""Dataset of the digests of patches."""
COORDINATES = "coordinates_sha256"
"""Setting of an origin: digest of the names and places of all patches of a file."""
_OF_PATCHES = ("slide_bytes", "slide_sample_sha256")
"""Fields of an origin that digests of patches contain."""


def patch_digests(rows: pd.DataFrame) -> NDArray[np.bytes_]:
    """SHA-256 of everything that decides a patch's pixels: file, place, and name inside a zip. Shape (n,).

    Names and labels of patches do not enter: an unlabeled patch keeps its features once it has a label.
    """
    digest_of = source_digests(rows)
    files = {path: file_of(Path(path)) for path in rows["path"].unique()}
    source_of = {path: f"{digest_of[file]}\0{Path(path).relative_to(file)}" for path, file in files.items()}
    places = rows[list(PLACE)].to_numpy(np.float64).tolist()
    texts = [f"{source_of[path]}\0{place}" for path, place in zip(rows["path"], places, strict=True)]
    return np.array([hashlib.sha256(text.encode()).hexdigest() for text in texts], np.bytes_)


def earlier_features(
    path: Path,
    made_from: Mapping[str, Any],
    origin: Origin,
    digests: NDArray[np.bytes_],
    datasets: Sequence[Sequence[str]],
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Which patches an earlier file of equal encoder and settings holds, and their features.

    Args:
        path: the earlier file.
        made_from: its origin.
        origin: origin of the features now.
        digests: `patch_digests` of the patches now, Shape (n,).
        datasets: of each view, the names of its datasets, side by side.

    Returns:
        Shape (n,), and Shape (views, number of patches in the file, D), in the order of the patches now.
    """
    settings = dict(origin.settings)
    settings[COORDINATES] = made_from["settings"].get(COORDINATES)
    same = replace(origin, settings=settings, **{name: made_from[name] for name in _OF_PATCHES})
    if same.differences(made_from):
        return np.zeros(len(digests), bool), np.empty((len(datasets), 0, 0), np.float32)
    with open_hdf5(path) as file:
        number = {digest: i for i, digest in enumerate(file[PATCH_SHA256][:].tolist())}
        numbers = np.array([number.get(digest, -1) for digest in digests.tolist()])
        taken = numbers[numbers >= 0]
        features = [np.hstack([mapped(path, file[name])[taken] for name in names]) for names in datasets]
    return numbers >= 0, np.stack(features).astype(np.float32)
