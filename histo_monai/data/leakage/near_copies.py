"""Near copies between splits: images with similar fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.leakage.fingerprints import MAX_DISTANCE, class_words, distances
from histo_monai.data.tables.manifests import first_five
from histo_monai.utils.process.processes import map_over_processes

NEAR_COLUMNS = ("kind", "first", "first_split", "second", "second_split", "distance")
"""`kind` is image or slide; `first` and `second` are patch_ids or slide_ids; `distance` counts differing bits."""

_ROWS = 4096
_TILE, _COLUMNS = 64, 1024  # Pairs per block, sized for the processor's cache.


def near_copies(
    images: pd.DataFrame, sides: Sequence[tuple[str, str]], kind: str, processes: int
) -> pd.DataFrame:
    """Pairs of images of two splits that differ in few bits, in any of eight orientations.

    Args:
        images: `name`, `split`, `digest` and `fingerprint` (may be empty); pairs of one digest are skipped as
            equal images.
        sides: Pairs of splits to compare.
        processes: Blocks compared in parallel; does not affect the result.

    Returns:
        `NEAR_COLUMNS`, the nearest first.
    """
    images = images[images["fingerprint"] != ""]
    parts = [pd.DataFrame(columns=list(NEAR_COLUMNS))]
    for one, other in sides:
        left, right = images[images["split"] == one], images[images["split"] == other]
        pairs = _pairs(left["fingerprint"].tolist(), right["fingerprint"].tolist(), processes)
        first, second = left.iloc[pairs[:, 0]], right.iloc[pairs[:, 1]]
        columns = (first["name"].array, one, second["name"].array, other, pairs[:, 2])
        near = pd.DataFrame(dict(zip(NEAR_COLUMNS[1:], columns, strict=True))).assign(kind=kind)
        parts.append(near[first["digest"].to_numpy() != second["digest"].to_numpy()])
    filled = [part for part in parts if len(part)] or parts[:1]
    table = pd.concat(filled, ignore_index=True).drop_duplicates(["first", "second"])
    order = ["distance", "first", "second"]
    return table.sort_values(order, ignore_index=True)[list(NEAR_COLUMNS)]


def near_copies_in_words(table: pd.DataFrame, kind: str) -> list[str]:
    """A warning if the table of `near_copies` has rows."""
    if table.empty:
        return []
    named = [
        f"{row.first} in {row.first_split} and {row.second} in {row.second_split}"
        for row in table.itertuples()
    ]
    counted = f"1 pair of {kind}s looks" if len(table) == 1 else f"{len(table)} pairs of {kind}s look"
    return [
        f"{counted} like copies of one another, re-encoded, resized, mirrored or turned: {first_five(named)}. "
        "Fix: look at the pairs in near_copies.csv, and remove one of each"
    ]


def _pairs(left: list[str], right: list[str], processes: int) -> NDArray[np.int64]:
    """Columns: row of left, row of right, number of differing bits."""
    if not left or not right:
        return np.zeros((0, 3), np.int64)
    of_left = class_words([bytes.fromhex(text) for text in left])[0]
    of_right = class_words([bytes.fromhex(text) for text in right])
    starts = list(range(0, len(left), _ROWS))
    work = partial(_pairs_of_rows, of_left, of_right)
    if len(starts) == 1:  # One block needs no progress bar.
        return work(0)
    of_blocks = map_over_processes(work, starts, processes=processes, title="near copies", unit="block")
    return np.concatenate(list(of_blocks))


def _pairs_of_rows(left: NDArray[np.uint64], right: NDArray[np.uint64], start: int) -> NDArray[np.int64]:
    parts = []
    for top in range(start, min(start + _ROWS, left.shape[1]), _TILE):
        some = left[:, top : top + _TILE]
        for begin in range(0, right.shape[2], _COLUMNS):
            distance = distances(some, right[:, :, begin : begin + _COLUMNS])
            rows = np.argwhere(distance <= MAX_DISTANCE)
            parts.append(np.column_stack([rows + np.array([top, begin]), distance[tuple(rows.T)]]))
    return np.concatenate(parts).astype(np.int64)
