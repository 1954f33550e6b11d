"""Mean, interval and test over several runs on one sample of patients, for a model or a difference of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from histo_monai.evaluation.metrics.bootstrap import Resampling
from histo_monai.evaluation.metrics.estimate import Estimate
from histo_monai.utils.process.products import product

_FEWEST_DEFINED = 0.5
_SMALLEST_P = 1e-15  # Smallest reported p of several spreads.
_NOTHING = 1e-24  # Smaller variances are rounding: metrics are of the order of 1.


@dataclass(frozen=True)
class Spread:
    """One source of variation of a mean: its variance, and the degrees of freedom of that variance."""

    variance: float
    freedom: float


@dataclass(frozen=True)
class SeedMean:
    """Mean of a statistic over seeds.

    Attributes:
        value: the mean; NaN where the statistic is undefined for a seed.
        low: lower limit; NaN where a variance is unknown.
        high: upper limit.
        p: two-tailed, of a zero mean; below 1 - confidence exactly where the interval excludes zero.
        seed_sd: standard deviation over seeds; NaN for one seed.
    """

    value: float
    low: float
    high: float
    p: float
    seed_sd: float


def by_encoder(of_runs: NDArray[np.float64], encoders: Sequence[int]) -> NDArray[np.float64]:
    """Independent repeats: the runs of one encoder, or the mean of each of several encoders' runs.

    Runs of one encoder have its pretraining in common, so they are not independent repeats of the method.

    Args:
        of_runs: Shape (R, ...).
        encoders: pretraining seed of each run.

    Returns:
        Shape (U, ...): one per encoder in order of appearance; `of_runs` for one encoder.

    Raises:
        ValueError: there is not one encoder for each run.
    """
    if len(of_runs) != len(encoders):
        raise ValueError(f"{len(of_runs)} runs, {len(encoders)} encoders: expected one encoder per run")
    different = list(dict.fromkeys(encoders))
    if len(different) == 1:
        return of_runs
    return np.stack([of_runs[np.equal(encoders, encoder)].mean(axis=0) for encoder in different])


def seed_mean(
    per_seed: ArrayLike, group_variance: float, num_groups: float, confidence: float = 0.95
) -> SeedMean:
    """`spread_mean` for one spread over patients (groups), with G - 1 degrees of freedom.

    Args:
        per_seed: Shape (S,), the statistic for each seed on all groups.
        group_variance: variance over groups of the mean over seeds, e.g. from `replicate_variance`.
        num_groups: G; for groups of different sizes, `effective_groups`.

    Raises:
        ValueError: there is no seed.
    """
    return spread_mean(per_seed, [Spread(group_variance, num_groups - 1)], confidence)


def mean_difference(
    first: ArrayLike, second: ArrayLike, groups: ArrayLike | None, *, seed: int, num_replicates: int = 2000
) -> Estimate:
    """Mean over rows of first minus second, with the interval of `compare_models` for one seed.

    Student's t with the bootstrap's variance over groups and `effective_groups` less one degrees of freedom.
    Percentiles of the bootstrap are too narrow for few groups: 0.7 times the width for 6 slides.

    Args:
        first: Shape (N,), goodness of a model on each row, e.g. 1 where it is right.
        second: Shape (N,), goodness of another model.
        groups: Shape (N,), patient or slide of each row; None: rows are independent.

    Returns:
        n is the number of groups. Both limits are NaN for one group, or for equal differences in all groups (0..0 for
        differences of 0).

    Raises:
        ValueError: the shapes differ, there are no rows, or a group is missing.
    """
    one, other = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if one.ndim != 1 or one.shape != other.shape:
        raise ValueError(f"first {one.shape} and second {other.shape}: expected one number for each row")
    resampling = Resampling(len(one), groups, seed=seed, num_replicates=num_replicates)
    sums = np.bincount(resampling.group_of_row, one - other)
    sizes = np.bincount(resampling.group_of_row).astype(np.float64)
    replicates = [product(sums, counts) / product(sizes, counts) for counts in resampling.blocks()]
    num_groups = effective_groups(resampling.group_of_row)
    variance = replicate_variance(np.concatenate(replicates), num_groups)
    mean = seed_mean([sums.sum() / sizes.sum()], variance, num_groups)
    return Estimate(mean.value, mean.low, mean.high, resampling.num_groups)


def spread_mean(per_seed: ArrayLike, spreads: Sequence[Spread], confidence: float = 0.95) -> SeedMean:
    """Mean over seeds, with an interval that includes variation between patients and, for several, between seeds.

    The spread over seeds has variance sample variance / S and S - 1 degrees of freedom. The half width of the interval
    is the root of the sum of t² V over all spreads, each V with the t of its own degrees of freedom (Banerjee 1960).
    Its coverage is at least nominal whichever spread is large; Satterthwaite's single t misses too often with two or
    three seeds. The interaction of seeds and patients counts in both spreads, so the interval is slightly wide. One
    seed has no spread over seeds: the interval leaves out variation between seeds.

    Where all variances and the mean are zero (two equal models), the interval is 0..0 and p is 1. Interval and p are
    NaN where all variances are zero and the mean is not (equal differences for every patient and seed), or a variance
    is unknown (one group, an undefined statistic).

    Args:
        per_seed: Shape (S,), the statistic for each seed on all groups.
        spreads: of the mean over seeds, over patients.

    Raises:
        ValueError: there is no seed.
    """
    values = np.asarray(per_seed, np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"a mean over seeds needs one value per seed, got shape {values.shape}")
    num_seeds, value = len(values), float(values.mean())
    seed_sd = float(values.std(ddof=1)) if num_seeds > 1 else float("nan")
    of_seeds = [Spread(seed_sd**2 / num_seeds, num_seeds - 1.0)] if num_seeds > 1 else []
    sources = [*spreads, *of_seeds]
    unknown = any(np.isnan(source.variance) or source.freedom <= 0 for source in sources)
    if np.isnan(value) or unknown:
        return SeedMean(value, *(float("nan"),) * 3, seed_sd)
    if sum(source.variance for source in sources) < _NOTHING:
        same = abs(value) < _NOTHING**0.5
        end, p = (0.0, 1.0) if same else (float("nan"), float("nan"))
        return SeedMean(value, end, end, p, seed_sd)
    variance = np.array([source.variance for source in sources if source.variance > 0])
    freedom = np.array([source.freedom for source in sources if source.variance > 0])
    quantiles = special.stdtrit(freedom, (1 - confidence) / 2)
    reach = float(np.sqrt((np.square(quantiles) * variance).sum()))
    return SeedMean(value, value - reach, value + reach, _p(value, variance, freedom), seed_sd)


def _p(value: float, variance: NDArray[np.float64], freedom: NDArray[np.float64]) -> float:
    """Largest p with an interval of confidence 1 - p that touches zero."""
    if value == 0:
        return 1.0
    if len(variance) == 1:
        return float(2 * special.stdtr(freedom[0], -abs(value) / variance[0] ** 0.5))
    target, logs = 2 * np.log(abs(value)), np.log(variance)

    def beyond(log_p: float) -> float:
        quantiles = -special.stdtrit(freedom, np.exp(log_p) / 2)
        return float(np.logaddexp.reduce(2 * np.log(quantiles) + logs)) - target

    least, most = float(np.log(_SMALLEST_P)), -1e-6
    if beyond(least) <= 0:
        return _SMALLEST_P
    return 1.0 if beyond(most) >= 0 else float(np.exp(optimize.brentq(beyond, least, most)))


def effective_groups(group_of_row: NDArray[np.int64]) -> float:
    """Number of equal groups with equal information: N² / sum of squared sizes (Kish 1965).

    One large patient among small patients dominates the mean, which reduces the degrees of freedom.

    Args:
        group_of_row: Shape (N,), int, 0..G-1.
    """
    sizes = np.bincount(group_of_row).astype(np.float64)
    return float(sizes.sum() ** 2 / np.square(sizes).sum())


def replicate_variance(replicates: NDArray[np.float64], num_groups: float) -> float:
    """Variance over groups of a statistic, from its bootstrap replicates, with the factor G / (G - 1).

    The bootstrap's variance of a mean divides by G, a sample variance by G - 1, which matters for few groups.

    Args:
        replicates: Shape (B,); NaN are left out.
        num_groups: G; for groups of different sizes, `effective_groups`.

    Returns:
        NaN for one group, or where more than half of the replicates are undefined.
    """
    defined = replicates[~np.isnan(replicates)]
    if num_groups <= 1 or len(defined) < max(2, _FEWEST_DEFINED * len(replicates)):
        return float("nan")
    return float(np.var(defined, ddof=1)) * num_groups / (num_groups - 1)


def mcnemar_p(right_first: ArrayLike, right_second: ArrayLike) -> float:
    """Two-sided exact test of equal accuracy of two models on independent rows (McNemar 1947).

    Twice the smaller binomial tail over the rows on which exactly one model is right, at most 1; 1 without such rows.

    Args:
        right_first: Shape (N,), bool.
        right_second: Shape (N,), bool.

    Raises:
        ValueError: the shapes differ.
    """
    first, second = np.asarray(right_first, bool), np.asarray(right_second, bool)
    if first.shape != second.shape:
        raise ValueError(f"right_first {first.shape} and right_second {second.shape}: expected the same rows")
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    tail = special.bdtr(min(only_first, only_second), only_first + only_second, 0.5)
    return float(min(1.0, 2 * tail))
