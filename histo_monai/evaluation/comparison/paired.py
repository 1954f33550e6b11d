"""Several runs on one sample of patients: mean, interval and test, of a model or of a difference of two."""

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
_SMALLEST_P = 1e-15  # Of several spreads; nothing smaller is reported.
_NOTHING = 1e-24  # A variance below this is rounding: metrics are of the order of 1.


@dataclass(frozen=True)
class Spread:
    """One source of chance in a mean: the variance that it gives the mean, and how well that is known."""

    variance: float
    freedom: float


@dataclass(frozen=True)
class SeedMean:
    """The mean of a statistic over seeds.

    Attributes:
        value: the mean; NaN where the statistic is undefined for a seed.
        low: lower end of the interval; NaN where a variance is unknown.
        high: upper end.
        p: two-tailed, of the mean being zero: below 1 - confidence just where the interval is beside zero.
        seed_sd: standard deviation over seeds; NaN for one seed.
    """

    value: float
    low: float
    high: float
    p: float
    seed_sd: float


def by_encoder(of_runs: NDArray[np.float64], encoders: Sequence[int]) -> NDArray[np.float64]:
    """What runs that share no luck gave: the runs themselves, or where they have several encoders a mean for each.

    Runs of one encoder share how lucky its pretraining was, so they are no independent repeats of the method.

    Args:
        of_runs: Shape (R, ...).
        encoders: of each run, its seed.

    Returns:
        Shape (U, ...): of each encoder, in order of appearance; `of_runs` where all have the same.

    Raises:
        ValueError: not one encoder for each run.
    """
    if len(of_runs) != len(encoders):
        raise ValueError(f"{len(of_runs)} runs, {len(encoders)} encoders: expected one of each run")
    different = list(dict.fromkeys(encoders))
    if len(different) == 1:
        return of_runs
    return np.stack([of_runs[np.equal(encoders, encoder)].mean(axis=0) for encoder in different])


def seed_mean(
    per_seed: ArrayLike, group_variance: float, num_groups: float, confidence: float = 0.95
) -> SeedMean:
    """`spread_mean` of one spread over patients (groups), with G - 1 degrees of freedom.

    Args:
        per_seed: Shape (S,), the statistic for each seed on all groups.
        group_variance: variance over groups of the mean over seeds, e.g. of `replicate_variance`.
        num_groups: G; where groups differ in size, `effective_groups`.

    Raises:
        ValueError: If there is no seed.
    """
    return spread_mean(per_seed, [Spread(group_variance, num_groups - 1)], confidence)


def mean_difference(
    first: ArrayLike, second: ArrayLike, groups: ArrayLike | None, *, seed: int, num_replicates: int = 2000
) -> Estimate:
    """Mean over rows of first minus second, with the interval that `compare_models` gives a difference of one seed.

    Student's t with the bootstrap's variance over groups and as many degrees of freedom as `effective_groups` less
    one. Percentiles of the bootstrap are too close for few groups: of 6 slides 0.7 times as far apart.

    Args:
        first: Shape (N,), how good a model is on each row, e.g. 1 where it is right.
        second: the same of another model.
        groups: Shape (N,), patient or slide of each row; None: rows are independent.

    Returns:
        n is the number of groups. Both ends are NaN where nothing is known of the spread over groups: there is one
        group, or all differ by the same (0..0 where that is nothing).

    Raises:
        ValueError: If the shapes differ, there are no rows, or a group is missing.
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
    """Mean over seeds with an interval that pays for other patients and, where there are several, other seeds.

    To the spreads over patients comes the sample variance over seeds over their number S, with S - 1 degrees of
    freedom. The half width of the interval is the root of the sum of t² V over all of them, each V with the t of its
    own degrees of freedom (Banerjee 1960): it covers at least as often as it says, whichever of them is large, where
    Satterthwaite's single t misses too often with two or three seeds. The spread over patients holds the part of how
    seeds and patients go together that the spread over seeds holds too: a little too wide rather than too narrow.
    With one seed the spread over seeds is unknown and left out: the interval is then silent about other seeds.

    Where all variances are zero and so is the mean (two models that say the same), the interval is 0..0 and p is 1.
    Where they are zero and the mean is not (every patient and seed gives the same difference), or one is unknown (one
    group, an undefined statistic), interval and p are NaN.

    Args:
        per_seed: Shape (S,), the statistic for each seed on all groups.
        spreads: of the mean over seeds, over patients.

    Raises:
        ValueError: If there is no seed.
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
    """The p at which the interval of confidence 1 - p ends at zero."""
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
    """How many groups of equal size would tell as much: N² / sum of squared sizes (Kish 1965).

    One large patient among small ones decides nearly alone, and with him degrees of freedom are lost.

    Args:
        group_of_row: Shape (N,), int, 0..G-1.
    """
    sizes = np.bincount(group_of_row).astype(np.float64)
    return float(sizes.sum() ** 2 / np.square(sizes).sum())


def replicate_variance(replicates: NDArray[np.float64], num_groups: float) -> float:
    """Variance over groups of what was replicated by a bootstrap of G groups.

    The bootstrap's own variance of a mean divides by G where a sample variance divides by G - 1; with few groups
    that matters, and is made good.

    Args:
        replicates: Shape (B,); undefined ones (NaN) are left out.
        num_groups: G; where groups differ in size, `effective_groups`.

    Returns:
        NaN for one group, or where more than half of the replicates are undefined.
    """
    drawn = replicates[~np.isnan(replicates)]
    if num_groups <= 1 or len(drawn) < max(2, _FEWEST_DEFINED * len(replicates)):
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
