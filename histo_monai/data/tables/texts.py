"""Fast sorting, sharing and duplicate detection for large columns of texts.

Python's texts are scattered in memory, so comparing millions of them misses the processor's caches. This module sorts
contiguous bytes, compares hashes, and stores equal texts as one object.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_PIECE_ROWS = 2**16
"""Rows processed together: their texts fit a processor's cache."""


def order_of(texts: pd.Series) -> NDArray[np.intp]:
    """Positions that sort texts (without trailing NUL) stably by code points, shape (n,)."""
    side_by_side = _bytes_of(_objects(texts).tolist())
    if (side_by_side[1:] >= side_by_side[:-1]).all():
        return np.arange(len(texts))
    return np.argsort(side_by_side, kind="stable")


def _bytes_of(texts: list[str]) -> NDArray[np.bytes_]:
    try:
        return np.array(texts, np.bytes_)
    except UnicodeEncodeError:  # UTF-8 sorts like code points; file names may contain surrogates.
        return np.array([text.encode(errors="surrogatepass") for text in texts], np.bytes_)


class SharedTexts:
    """Pool that stores equal texts of successive columns as one object.

    A separate text needs 60 to 100 bytes in addition to the 8 bytes of a row.
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, texts: pd.Series) -> pd.Series:
        """The column with shared texts; pieces with more than half distinct texts are not changed."""
        values = _objects(texts)
        shared = np.empty(len(values), object)
        for start in range(0, len(values), _PIECE_ROWS):
            piece = values[start : start + _PIECE_ROWS]
            numbers, different = pd.factorize(piece)
            if 2 * len(different) > len(piece):
                shared[start : start + _PIECE_ROWS] = piece
            else:
                known = np.array([self._known.setdefault(text, text) for text in different], object)
                shared[start : start + _PIECE_ROWS] = known[numbers]
        return pd.Series(shared, index=texts.index, name=texts.name, dtype="str")


def come_again(table: pd.DataFrame, columns: Sequence[str]) -> NDArray[np.bool_]:
    """Mask of rows that repeat an earlier row in these columns of texts or whole numbers, shape (n,)."""
    numbers = pd.util.hash_pandas_object(table[list(columns)], index=False, categorize=False).to_numpy()
    numbers = np.sort(numbers)
    if not (numbers[1:] == numbers[:-1]).any():  # Equal rows have equal hashes.
        return np.zeros(len(table), np.bool_)
    return table.duplicated(list(columns)).to_numpy()


def _objects(texts: pd.Series) -> NDArray[np.object_]:
    """Column as Python's texts; iterating over the column itself is a hundred times slower."""
    return texts.to_numpy(dtype=object)
