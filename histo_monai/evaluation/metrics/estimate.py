"""Value with interval, the result of every metric."""

from __future__ import annotations

import math
from dataclasses import dataclass

ESTIMATE_SHAPE = {"value": (float, None), "low": (float, None), "high": (float, None), "n": int}
"""Shape (`utils.storage.shapes`) of `Estimate.as_dict`."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % confidence interval and sample size.

    Attributes:
        value: the point estimate; NaN where the statistic is undefined on these rows.
        low: lower limit; NaN where the method gives none (its docstring states when).
        high: upper limit.
        n: independent rows used: groups for a grouped bootstrap, else rows.
    """

    value: float
    low: float
    high: float
    n: int

    def as_dict(self) -> dict[str, float | int | None]:
        """Content for JSON: six decimals; null for undefined numbers."""
        return {
            "value": _finite(self.value),
            "low": _finite(self.low),
            "high": _finite(self.high),
            "n": self.n,
        }


def _finite(number: float) -> float | None:
    return round(float(number), 6) if math.isfinite(number) else None
