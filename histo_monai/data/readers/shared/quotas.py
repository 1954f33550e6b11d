"""Even quotas of patches per slide."""

from __future__ import annotations

import numpy as np


def even_quotas(limits: np.ndarray, wanted: int) -> np.ndarray:
    """Quotas that sum to `wanted`, as even as their upper limits allow, int64, shape (n,).

    Earlier entries receive the remainder.

    Args:
        limits: Upper limits, shape (n,), with a sum of at least `wanted`.
    """
    low, high = 0, int(limits.max(initial=0))
    while low < high:  # The highest level to which all entries can be filled.
        level = (low + high + 1) // 2
        low, high = (level, high) if np.minimum(limits, level).sum() <= wanted else (low, level - 1)
    quotas = np.minimum(limits, low).astype(np.int64)
    quotas[np.flatnonzero(limits > low)[: wanted - quotas.sum()]] += 1
    return quotas
