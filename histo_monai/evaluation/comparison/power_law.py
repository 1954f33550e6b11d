"""Inverse power laws of learning curves, one per bootstrap replicate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SLOWEST, _FASTEST = 0.01, 4.0  # Range of exponents: nearly logarithmic, nearly a step.
_NUM_TRIED = 61
_NUM_GOLDEN = 48  # Golden sections: each leaves 0.618 of the bracket, together 1e-10.
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class PowerLaws:
    """B laws score = ceiling - drop · (n / largest)^-exponent (Cortes et al. 1994, Viering & Loog 2021).

    Attributes:
        ceiling: Shape (B,), limit of the score for many labels.
        drop: Shape (B,), ceiling minus score at the largest number of labels; 0 or more.
        exponent: Shape (B,), positive.
        largest: number of labels that is the unit of n.
    """

    ceiling: NDArray[np.float64]
    drop: NDArray[np.float64]
    exponent: NDArray[np.float64]
    largest: float

    @classmethod
    def fit(cls, num_labels: NDArray[np.float64], scores: NDArray[np.float64], limit: float) -> PowerLaws:
        """Fit by least squares with ceiling <= limit and drop >= 0; deterministic, without a starting point.

        For a given exponent, ceiling and drop are a bounded linear regression in closed form. The exponent is found on
        a grid and refined by golden sections. The ceiling may be below the largest score, as scores are noisy.

        Args:
            num_labels: Shape (L,), positive, increasing.
            scores: Shape (L, B).
            limit: the largest score that the metric can take.
        """
        relative = np.log(num_labels / num_labels[-1])

        def misfit(log_exponent: NDArray[np.float64]) -> NDArray[np.float64]:
            return _ceiling_drop_misfit(relative, scores, log_exponent, limit)[2]

        grid = np.linspace(np.log(_SLOWEST), np.log(_FASTEST), _NUM_TRIED)
        misfits = np.stack([misfit(np.full(scores.shape[1], tried)) for tried in grid])
        best = misfits.argmin(axis=0)
        log_exponent = _golden_section(
            misfit, grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, _NUM_TRIED - 1)]
        )
        ceiling, drop, _ = _ceiling_drop_misfit(relative, scores, log_exponent, limit)
        return cls(ceiling, drop, np.exp(log_exponent), float(num_labels[-1]))

    def scores_at(self, num_labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Score of each law at each number of labels, (L,), positive -> (L, B)."""
        relative: NDArray[np.float64] = np.log(num_labels / self.largest)[:, None]
        return self.ceiling - self.drop * np.exp(-self.exponent * relative)

    def labels_for(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Number of labels at which each law reaches its score, (B,) -> (B,); inf at or above the ceiling.

        Numbers beyond e^600 times the largest are inf; a flat law above the score gives 0.
        """
        gap = self.ceiling - scores
        below = gap > 0
        logs = np.full(len(scores), np.inf)
        with np.errstate(divide="ignore"):
            logs[below] = np.log(self.drop[below] / gap[below]) / self.exponent[below]
        logs[logs > 600] = np.inf
        return self.largest * np.exp(logs)


def _ceiling_drop_misfit(
    relative: NDArray[np.float64],
    scores: NDArray[np.float64],
    log_exponent: NDArray[np.float64],
    limit: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Ceiling, drop and sum of squares, each (B,), of a bounded regression of scores (L, B) on n^-exponent.

    The problem is convex: where the free solution breaks a bound, the bounded solution lies on that bound.
    """
    falls = np.exp(-np.exp(log_exponent) * relative[:, None])
    means, centered = scores.mean(axis=0), falls - falls.mean(axis=0)
    drop = np.maximum(-(centered * scores).sum(axis=0) / (centered**2).sum(axis=0), 0.0)
    ceiling = means + drop * falls.mean(axis=0)
    above = ceiling > limit
    through_limit = np.maximum((falls * (limit - scores)).sum(axis=0) / (falls**2).sum(axis=0), 0.0)
    ceiling, drop = np.where(above, limit, ceiling), np.where(above, through_limit, drop)
    return ceiling, drop, ((scores - ceiling + drop * falls) ** 2).sum(axis=0)


def _golden_section(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Minimum of each of B functions between its limits, (B,), (B,) -> (B,)."""
    for _ in range(_NUM_GOLDEN):
        width = _GOLDEN * (high - low)
        left, right = high - width, low + width
        lower_left = function(left) < function(right)
        low, high = np.where(lower_left, low, left), np.where(lower_left, right, high)
    return (low + high) / 2
