"""What several seeds on one sample of patients say: mean, interval and test, of a model or of a difference of two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

_FEWEST_DEFINED = 0.5
_SMALLEST_P = 1e-15
_NOTHING = 1e-24  # A variance below this is rounding: metrics are of the order of 1.


@dataclass(frozen=True)
class SeedMean:
    """The mean of a statistic over seeds.

    Attributes:
        value: the mean; NaN where the statistic is undefined for a seed.
        low: lower end of the t interval; NaN where the variance is unknown.
        high: upper end.
        p: two-tailed, of the mean being zero: below 1 - confidence just where the interval is beside zero.
        seed_sd: standard deviation over seeds; NaN for one seed.
    """

    value: float
    low: float
    high: float
    p: float
    seed_sd: float


def seed_mean(
    per_seed: ArrayLike, group_variance: float, num_groups: int, confidence: float = 0.95
) -> SeedMean:
    """Mean over seeds with a t interval that pays for few patients and for few seeds.

    The error has two parts: that over patients (groups), with G - 1 degrees of freedom, of the mean over the seeds;
    and the sample variance over the S seeds divided by S, with S - 1. The half-width of the interval is
    sqrt(t² V + u² W), t and u the quantiles of Student's t of each part. It covers the truth at least as often as
    it says, whatever the ratio of the parts (Banerjee 1960, Sankhya 22); the interval with Satterthwaite's degrees
    of freedom does not: where seeds differ much it is wrong in 12 % of cases for two seeds, in 7 % for three.
    With one seed the second part is unknown and left out: the interval is then of the models of that seed.

    Where both parts are zero and so is the mean (two models that say the same), the interval is 0..0 and p is 1.
    Where they are zero and the mean is not (every patient and seed gives the same difference), or one is unknown
    (one group, an undefined statistic), interval and p are NaN.

    Args:
        per_seed: Shape (S,), the statistic for each seed on all groups.
        group_variance: variance over groups of the mean over seeds, e.g. of `replicate_variance`.
        num_groups: G.
        confidence: of the interval.

    Raises:
        ValueError: If there is no seed.
    """
    values = np.asarray(per_seed, np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"a mean over seeds needs one value per seed, got shape {values.shape}")
    num_seeds, value = len(values), float(values.mean())
    seed_sd = float(values.std(ddof=1)) if num_seeds > 1 else float("nan")
    parts = [(group_variance, num_groups - 1)]
    if num_seeds > 1:
        parts.append((seed_sd**2 / num_seeds, num_seeds - 1))
    total = sum(variance for variance, _ in parts)
    if np.isnan(total) or np.isnan(value) or num_groups < 2:
        return SeedMean(value, float("nan"), float("nan"), float("nan"), seed_sd)
    if total < _NOTHING:
        same = abs(value) < _NOTHING**0.5
        end, p = (0.0, 1.0) if same else (float("nan"), float("nan"))
        return SeedMean(value, end, end, p, seed_sd)
    reach = _reach(1 - confidence, parts)
    return SeedMean(value, value - reach, value + reach, _p_value(abs(value), parts), seed_sd)


def _reach(alpha: float, parts: list[tuple[float, int]]) -> float:
    """Half-width of the interval of confidence 1 - alpha, from variances and their degrees of freedom."""
    return float(
        sum(special.stdtrit(freedom, alpha / 2) ** 2 * variance for variance, freedom in parts) ** 0.5
    )


def _p_value(distance: float, parts: list[tuple[float, int]]) -> float:
    """The alpha whose interval just reaches as far."""
    if len(parts) == 1:
        (variance, freedom), *_ = parts
        return float(2 * special.stdtr(freedom, -distance / variance**0.5))
    if distance >= _reach(_SMALLEST_P, parts):
        return _SMALLEST_P
    found = optimize.brentq(
        lambda log_alpha: _reach(float(np.exp(log_alpha)), parts) - distance, np.log(_SMALLEST_P), 0.0
    )
    return float(np.exp(found))


def replicate_variance(replicates: NDArray[np.float64], num_groups: int) -> float:
    """Variance over groups of what was replicated by a bootstrap of G groups.

    The bootstrap's own variance of a mean divides by G where a sample variance divides by G - 1; with few groups
    that matters, and is made good.

    Args:
        replicates: Shape (B,); undefined ones (NaN) are left out.
        num_groups: G.

    Returns:
        NaN for one group, or where more than half of the replicates are undefined.
    """
    drawn = replicates[~np.isnan(replicates)]
    if num_groups < 2 or len(drawn) < max(2, _FEWEST_DEFINED * len(replicates)):
        return float("nan")
    return float(np.var(drawn, ddof=1)) * num_groups / (num_groups - 1)


def mcnemar_p(right_first: ArrayLike, right_second: ArrayLike) -> float:
    """Two-sided exact test that two models are equally often right on independent rows (McNemar 1947).

    Of the rows on which just one of them is right, as many should speak for the first as for the second: twice the
    smaller binomial tail, at most 1; 1 where there is no such row.

    Args:
        right_first: Shape (N,), bool.
        right_second: Shape (N,), bool.

    Raises:
        ValueError: If the shapes differ.
    """
    first, second = np.asarray(right_first, bool), np.asarray(right_second, bool)
    if first.shape != second.shape:
        raise ValueError(f"right_first {first.shape} and right_second {second.shape}: expected the same rows")
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    tail = special.bdtr(min(only_first, only_second), only_first + only_second, 0.5)
    return float(min(1.0, 2 * tail))
