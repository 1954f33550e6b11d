"""Order of small whole numbers, at the same cost a row however many there are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def stable_order(numbers: NDArray[np.integer]) -> NDArray[np.intp]:
    """Positions that sort whole numbers, equal ones as they stand; by counting where they are small. Shape (n,)."""
    if len(numbers) and numbers.min() >= 0 and numbers.max() < 2**16:
        numbers = numbers.astype(np.uint16)  # which NumPy sorts by counting, all wider ones by comparing
    return np.argsort(numbers, kind="stable")
