"""Area under the ROC curve, its interval, and the test between two scores of the same rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from histo_monai.metrics import checks
from histo_monai.metrics.estimate import Estimate


@dataclass(frozen=True)
class DeLongTest:
    """Two AUCs on the same rows.

    Attributes:
        difference: AUC of the first minus AUC of the second.
        z: the difference over its standard error.
        p: two-tailed.
    """

    difference: Estimate
    z: float
    p: float


def auc(labels: ArrayLike, scores: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Area under the ROC curve: the chance that a positive row scores above a negative one, ties counting half.

    The interval is DeLong's plain normal one, clipped to 0..1: value ± 1.96 standard errors, the one that
    papers and other software print. DeLong, DeLong & Clarke-Pearson 1988, in O(n log n) by midranks as
    Sun & Xu 2014.

    Where a class has a single row its variance is unknown and the interval is NaN. Where the two classes are
    separated completely (value 1 or 0) DeLong's variance is zero, which says nothing of the uncertainty; then
    the interval is the exact binomial one of as many disjoint pairs as the smaller class has rows, all of
    which came out alike: conservative, and never empty.

    Args:
        labels: Shape (n,), 0 or 1.
        scores: Shape (n,); larger means more likely 1; any unit.
        confidence: of the interval.

    Raises:
        ValueError: If a label is not 0 or 1, a class is absent, a score is NaN, or the lengths differ.
    """
    is_positive, column = checks.binary(labels), checks.column("scores", scores)
    checks.same_length(labels=is_positive, scores=column)
    wins, losses = _placements(is_positive, column)
    pairs = len(wins) * len(losses)
    value = float(wins.sum() / pairs)
    tail = (1 - confidence) / 2
    if value in (0.0, 1.0):
        reach = 1 - tail ** (1 / min(len(wins), len(losses)))
        low, high = (1 - reach, 1.0) if value else (0.0, reach)
        return Estimate(value, float(low), float(high), len(column))
    error = float(stats.norm.isf(tail)) * _standard_error(wins, losses)
    return Estimate(value, *_clipped(value, error, lowest=0.0), len(column))


def delong_test(
    labels: ArrayLike, scores_a: ArrayLike, scores_b: ArrayLike, confidence: float = 0.95
) -> DeLongTest:
    """Two-tailed test of equal AUCs of two scores of the same rows (DeLong et al. 1988; Sun & Xu 2014).

    Scores that order every pair alike differ by exactly 0: z is 0, p is 1. Where the standard error is zero
    although the AUCs differ (complete separation against a constant score), or a class has a single row, the
    method has nothing to say: interval, z and p are NaN.

    Args:
        labels: Shape (n,), 0 or 1.
        scores_a: Shape (n,); larger means more likely 1.
        scores_b: Shape (n,), of the same rows.
        confidence: of the interval of the difference.

    Raises:
        ValueError: As `auc`.
    """
    is_positive = checks.binary(labels)
    a, b = checks.column("scores_a", scores_a), checks.column("scores_b", scores_b)
    checks.same_length(labels=is_positive, scores_a=a, scores_b=b)
    wins, losses = (
        of_a - of_b
        for of_a, of_b in zip(_placements(is_positive, a), _placements(is_positive, b), strict=True)
    )
    n = len(a)
    value = float(wins.sum() / (len(wins) * len(losses)))
    if not (wins.any() or losses.any()):
        return DeLongTest(Estimate(0.0, 0.0, 0.0, n), z=0.0, p=1.0)
    error = _standard_error(wins, losses)
    if not error > 0:
        return DeLongTest(Estimate(value, np.nan, np.nan, n), z=np.nan, p=np.nan)
    z = value / error
    reach = float(stats.norm.isf((1 - confidence) / 2)) * error
    difference = Estimate(value, *_clipped(value, reach, lowest=-1.0), n)
    return DeLongTest(difference, z=z, p=float(2 * stats.norm.sf(abs(z))))


def _clipped(value: float, reach: float, lowest: float) -> tuple[float, float]:
    low, high = np.clip([value - reach, value + reach], lowest, 1.0)  # NaN stays NaN.
    return float(low), float(high)


def _placements(
    is_positive: NDArray[np.bool_], scores: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per positive row the negatives below it, per negative row the positives above it; ties count half.

    A row's rank among all rows minus its rank among its own class is the number of the other class below it:
    two sorts instead of all pairs. The numbers are halves, hence exact.
    """
    overall = stats.rankdata(scores)
    positive, negative = scores[is_positive], scores[~is_positive]
    wins = overall[is_positive] - stats.rankdata(positive)
    losses = len(positive) - (overall[~is_positive] - stats.rankdata(negative))
    return wins, losses


def _standard_error(wins: NDArray[np.float64], losses: NDArray[np.float64]) -> float:
    """Of an AUC, or of a difference of AUCs when both are differences of placements; NaN for a single row."""
    if len(wins) < 2 or len(losses) < 2:
        return float("nan")
    if np.ptp(wins) == 0 and np.ptp(losses) == 0:
        return 0.0
    variances = (
        np.var(own / num_others, ddof=1) / len(own)
        for own, num_others in ((wins, len(losses)), (losses, len(wins)))
    )
    return float(np.sqrt(sum(variances)))
