"""Columns of texts in order, made of few objects, and rows that come twice, at a cost a row that hardly grows with the
number of rows.

Python's texts lie anywhere in memory: to compare or look up millions of them leaves the processor's caches each time.
Sorted are their bytes side by side, compared are numbers made of them, and texts that are the same are one object.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_PIECE_ROWS = 2**16
"""Rows of a column that are looked at together: their texts fit a processor's cache."""


def order_of(texts: pd.Series) -> NDArray[np.intp]:
    """Positions that sort texts (without NUL at their ends) by code points, equal ones as they stand. Shape (n,)."""
    side_by_side = _bytes_of(_objects(texts).tolist())
    if (side_by_side[1:] >= side_by_side[:-1]).all():
        return np.arange(len(texts))
    return np.argsort(side_by_side, kind="stable")


def _bytes_of(texts: list[str]) -> NDArray[np.bytes_]:
    try:
        return np.array(texts, np.bytes_)
    except UnicodeEncodeError:  # UTF-8 sorts as the code points do; names of files may hold what is none
        return np.array([text.encode(errors="surrogatepass") for text in texts], np.bytes_)


class SharedTexts:
    """Makes texts that are the same one object, in columns of tables that come one after the other.

    A text of its own takes 60 to 100 bytes beside the 8 of a row, and its own place in memory.
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, texts: pd.Series) -> pd.Series:
        """The same column; a piece of it where more than half of the texts differ is left as it is."""
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
    """Which rows have the values of an earlier one in these columns, texts or whole numbers. Shape (n,)."""
    numbers = pd.util.hash_pandas_object(table[list(columns)], index=False, categorize=False).to_numpy()
    numbers = np.sort(numbers)
    if not (numbers[1:] == numbers[:-1]).any():  # what is alike has the same number
        return np.zeros(len(table), np.bool_)
    return table.duplicated(list(columns)).to_numpy()


def _objects(texts: pd.Series) -> NDArray[np.object_]:
    """A column as Python's texts: to iterate over the column itself costs a hundred times as much."""
    return texts.to_numpy(dtype=object)
