"""Images in two splits that look like copies of each other, found by their fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.datasets.audit.fingerprints import MAX_DISTANCE, words, words_in_all_orientations
from histo_monai.datasets.processes import map_over_processes
from histo_monai.datasets.tables import first_five

NEAR_COLUMNS = ("kind", "first", "first_split", "second", "second_split", "distance")
"""`kind` is image or slide; `first` and `second` are patch_ids or slide_ids; `distance` counts differing bits."""

_BLOCK = 1024


def near_copies(
    seen: pd.DataFrame, sides: Sequence[tuple[str, str]], kind: str, processes: int
) -> pd.DataFrame:
    """Pairs of images on two sides that differ in few bits, in any of the eight orientations.

    Args:
        seen: `name`, `split`, `digest` and `fingerprint` (empty where there is none) of images; pairs of one digest are
            left out, as these are the same image.
        sides: pairs of splits to compare.
        kind: what the images are.
        processes: blocks compared at the same time; decides nothing.

    Returns:
        `NEAR_COLUMNS`, the nearest first.
    """
    seen = seen[seen["fingerprint"] != ""]
    parts = [pd.DataFrame(columns=list(NEAR_COLUMNS))]
    for one, other in sides:
        left, right = seen[seen["split"] == one], seen[seen["split"] == other]
        pairs = _pairs(left["fingerprint"].tolist(), right["fingerprint"].tolist(), processes)
        first, second = left.iloc[pairs[:, 0]], right.iloc[pairs[:, 1]]
        columns = (first["name"].array, one, second["name"].array, other, pairs[:, 2])
        found = pd.DataFrame(dict(zip(NEAR_COLUMNS[1:], columns, strict=True))).assign(kind=kind)
        parts.append(found[first["digest"].to_numpy() != second["digest"].to_numpy()])
    filled = [part for part in parts if len(part)] or parts[:1]
    table = pd.concat(filled, ignore_index=True).drop_duplicates(["first", "second"])
    order = ["distance", "first", "second"]
    return table.sort_values(order, ignore_index=True)[list(NEAR_COLUMNS)]


def near_copies_in_words(table: pd.DataFrame, kind: str) -> list[str]:
    """A warning, if `near_copies` found any."""
    if table.empty:
        return []
    named = [
        f"{row.first} in {row.first_split} and {row.second} in {row.second_split}"
        for row in table.itertuples()
    ]
    counted = f"1 pair of {kind}s looks" if len(table) == 1 else f"{len(table)} pairs of {kind}s look"
    return [
        f"{counted} like copies of one another, re-encoded, resized, mirrored or turned: {first_five(named)}. "
        "Look at them, and keep one of each; all are in near_copies.csv"
    ]


def _pairs(left: list[str], right: list[str], processes: int) -> NDArray[np.int64]:
    """Columns row of left, row of right, bits that differ."""
    if not left or not right:
        return np.zeros((0, 3), np.int64)
    of_left = words([bytes.fromhex(text) for text in left])
    of_right = words_in_all_orientations([bytes.fromhex(text) for text in right])
    starts = range(0, len(left), _BLOCK)
    work = partial(_pairs_of_block, of_left, of_right)
    title = "near copies"
    found = map_over_processes(work, list(starts), processes=processes, title=title, unit="block")
    return np.concatenate(list(found))


def _pairs_of_block(left: NDArray[np.uint64], right: NDArray[np.uint64], start: int) -> NDArray[np.int64]:
    parts = []
    some = left[start : start + _BLOCK, None]
    for begin in range(0, right.shape[1], _BLOCK):
        best = np.full((len(some), min(_BLOCK, right.shape[1] - begin)), 255, np.uint8)
        for turned in right[:, begin : begin + _BLOCK]:
            differing = np.bitwise_count(some[..., 0] ^ turned[:, 0])
            for word in range(1, turned.shape[1]):
                differing += np.bitwise_count(some[..., word] ^ turned[:, word])
            np.minimum(best, differing, out=best)
        rows = np.argwhere(best <= MAX_DISTANCE)
        parts.append(np.column_stack([rows + np.array([start, begin]), best[tuple(rows.T)]]))
    return np.concatenate(parts).astype(np.int64)
