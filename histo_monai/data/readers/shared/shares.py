"""Even division of a number of patches among slides."""

from __future__ import annotations

import numpy as np


def fair_shares(room: np.ndarray, wanted: int) -> np.ndarray:
    """Even division of `wanted` under upper limits, int64, shape (n,); earlier entries receive the remainder.

    Args:
        room: Upper limits, shape (n,), with a sum of at least `wanted`.
    """
    low, high = 0, int(room.max(initial=0))
    while low < high:  # The highest level to which all entries can be filled.
        level = (low + high + 1) // 2
        low, high = (level, high) if np.minimum(room, level).sum() <= wanted else (low, level - 1)
    shares = np.minimum(room, low).astype(np.int64)
    shares[np.flatnonzero(room > low)[: wanted - shares.sum()]] += 1
    return shares
