"""Sort order of small whole numbers in linear time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def stable_order(numbers: NDArray[np.integer]) -> NDArray[np.intp]:
    """Positions that sort whole numbers stably, shape (n,); small numbers are sorted by counting."""
    if len(numbers) and numbers.min() >= 0 and numbers.max() < 2**16:
        numbers = numbers.astype(np.uint16)  # NumPy sorts this type by counting, wider types by comparing.
    return np.argsort(numbers, kind="stable")
