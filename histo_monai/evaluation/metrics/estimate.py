"""A number with its interval: what every metric of the project is reported as."""

from __future__ import annotations

import math
from dataclasses import dataclass

ESTIMATE_SHAPE = {"value": (float, None), "low": (float, None), "high": (float, None), "n": int}
"""Shape of `Estimate.as_dict`, see `utils.storage.shapes`."""


@dataclass(frozen=True)
class Estimate:
    """A value, its 95 % confidence interval and what it rests on.

    Attributes:
        value: the point estimate; NaN where the statistic is undefined on these rows.
        low: lower end of the interval; NaN where the method gives none (its docstring states when).
        high: upper end.
        n: independent rows used: groups for a grouped bootstrap, else rows.
    """

    value: float
    low: float
    high: float
    n: int

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON: six decimals; null where a number is undefined."""
        return {
            "value": _finite(self.value),
            "low": _finite(self.low),
            "high": _finite(self.high),
            "n": self.n,
        }


def _finite(number: float) -> float | None:
    return round(float(number), 6) if math.isfinite(number) else None
