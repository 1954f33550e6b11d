"""Columns of texts in order, and rows that come twice, at a cost a row that hardly grows with the number of rows.

Python's texts lie anywhere in memory: to compare or look up millions of them leaves the processor's caches each time.
Sorted are their bytes side by side, and compared are numbers made of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def order_of(texts: pd.Series) -> NDArray[np.intp]:
    """Positions that sort texts (without NUL at their ends) by code points, equal ones as they stand. Shape (n,)."""
    # UTF-8 sorts as the code points do; names of files may hold what is none.
    return np.argsort(
        np.array([text.encode(errors="surrogatepass") for text in texts], np.bytes_), kind="stable"
    )


def come_again(table: pd.DataFrame, columns: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows have the values of an earlier one in these columns, texts or whole numbers. Shape (n,)."""
    numbers = pd.util.hash_pandas_object(table[list(columns)], index=False, categorize=False).to_numpy()
    numbers = np.sort(numbers)
    if not (numbers[1:] == numbers[:-1]).any():  # what is alike has the same number
        return np.zeros(len(table), np.bool_)
    return table.duplicated(list(columns)).to_numpy()
