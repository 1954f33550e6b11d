"""Adjustment of p-values for multiple tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted p-values of Holm's step-down procedure, valid for any dependence between tests (Holm 1979).

    The smallest of m is multiplied by m, the next by m - 1, ...; each is at least the one before, and at most 1.
    Calling all tests with an adjusted p up to 0.05 different errs in at most 5 % of families.

    Args:
        p_values: Shape (m,), 0..1; NaN: no test, not counted, stays NaN.

    Returns:
        Shape (m,).

    Raises:
        ValueError: a p-value is outside 0..1.
    """
    p = np.asarray(p_values, np.float64)
    outside = np.flatnonzero((p < 0) | (p > 1))
    if len(outside):
        raise ValueError(f"p-value {outside[0]} is {p[outside[0]]:g}: expected 0..1")
    adjusted = np.full(p.shape, np.nan)
    order = np.argsort(p)[: np.count_nonzero(~np.isnan(p))]  # NaN sorts last.
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
