"""AUC with DeLong's interval over rows or patients, and the paired test of two scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from histo_monai.evaluation.metrics import checks
from histo_monai.evaluation.metrics.estimate import Estimate


@dataclass(frozen=True)
class DeLongTest:
    """Test of two AUCs on common rows.

    Attributes:
        difference: AUC of the first minus AUC of the second.
        z: difference divided by its standard error.
        p: two-tailed.
    """

    difference: Estimate
    z: float
    p: float


def auc(
    labels: ArrayLike, scores: ArrayLike, confidence: float = 0.95, *, groups: ArrayLike | None = None
) -> Estimate:
    """Area under the ROC curve: probability that a positive row scores above a negative row, ties counting half.

    The interval is DeLong's normal interval, clipped to 0..1: value ± 1.96 standard errors, as in papers and other
    software (DeLong, DeLong & Clarke-Pearson 1988, in O(n log n) by midranks as Sun & Xu 2014). With `groups` the
    variance is over patients (Obuchowski 1997), as DeLong's own interval is too narrow for several rows per patient.
    With one row per patient both are equal.

    The interval is NaN where a class lies in one group. For complete separation (value 1 or 0) DeLong's variance is
    zero. Then the interval is the exact binomial interval of disjoint pairs, one for each group of the rarer class, all
    with the same order: conservative, and never empty.

    Args:
        labels: Shape (n,), 0 or 1.
        scores: Shape (n,); larger means more likely 1; any unit.
        groups: Shape (n,), the patient or slide of each row; None: rows are independent.

    Returns:
        n is the number of groups.

    Raises:
        ValueError: a label is not 0 or 1, a class is absent, a score is NaN, a group is missing, or the lengths differ.
    """
    is_positive, column = checks.binary(labels), checks.column("scores", scores)
    checks.same_length(labels=is_positive, scores=column)
    group_of_row = _groups(groups, len(column))
    n = int(group_of_row.max()) + 1
    wins, losses = _placements(is_positive, column)
    pairs = len(wins) * len(losses)
    value = float(wins.sum() / pairs)
    tail = (1 - confidence) / 2
    if value in (0.0, 1.0):
        num_pairs = min(len(np.unique(group_of_row[side])) for side in (is_positive, ~is_positive))
        reach = 1 - tail ** (1 / num_pairs)
        low, high = (1 - reach, 1.0) if value else (0.0, reach)
        return Estimate(value, float(low), float(high), n)
    error = float(stats.norm.isf(tail)) * _standard_error(is_positive, wins, losses, group_of_row)
    return Estimate(value, *_clipped(value, error, lowest=0.0), n)


def delong_test(
    labels: ArrayLike,
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    confidence: float = 0.95,
    *,
    groups: ArrayLike | None = None,
) -> DeLongTest:
    """Two-tailed paired test of equal AUCs of two scores (DeLong et al. 1988; Sun & Xu 2014).

    Scores of equal order have z 0 and p 1. Interval, z and p are NaN where the standard error is zero for different
    AUCs (complete separation against a constant score), or a class lies in one group.

    Args:
        labels: Shape (n,), 0 or 1.
        scores_a: Shape (n,); larger means more likely 1.
        scores_b: Shape (n,), in the order of `scores_a`.
        confidence: of the interval of the difference.

    Raises:
        ValueError: as `auc`.
    """
    is_positive = checks.binary(labels)
    a, b = checks.column("scores_a", scores_a), checks.column("scores_b", scores_b)
    checks.same_length(labels=is_positive, scores_a=a, scores_b=b)
    wins, losses = (
        of_a - of_b
        for of_a, of_b in zip(_placements(is_positive, a), _placements(is_positive, b), strict=True)
    )
    group_of_row = _groups(groups, len(a))
    n = int(group_of_row.max()) + 1
    value = float(wins.sum() / (len(wins) * len(losses)))
    if not (wins.any() or losses.any()):
        return DeLongTest(Estimate(0.0, 0.0, 0.0, n), z=0.0, p=1.0)
    error = _standard_error(is_positive, wins, losses, group_of_row)
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
    """Number of negatives below each positive row, and of positives above each negative row; ties count half.

    A row's rank among all rows minus its rank in its class is the number of rows of the other class below: two sorts
    instead of all pairs. The numbers are halves, hence exact.
    """
    overall = stats.rankdata(scores)
    positive, negative = scores[is_positive], scores[~is_positive]
    wins = overall[is_positive] - stats.rankdata(positive)
    losses = len(positive) - (overall[~is_positive] - stats.rankdata(negative))
    return wins, losses


def _standard_error(
    is_positive: NDArray[np.bool_],
    wins: NDArray[np.float64],
    losses: NDArray[np.float64],
    group_of_row: NDArray[np.int64],
) -> float:
    """Standard error of an AUC, or of a difference for differences of placements; NaN where unknown."""
    influence = np.empty(len(is_positive))
    for side, placements in ((is_positive, wins), (~is_positive, losses)):
        influence[side] = (placements - placements.mean()) / (len(wins) * len(losses))
    variances = clustered_variances(is_positive.astype(np.int64), influence, group_of_row)
    if variances is None:
        return float("nan")
    own, crossed = variances
    total = float(own.sum()) + crossed
    if total > 0:
        return total**0.5
    return float("nan") if influence.any() else 0.0


def clustered_variances(
    classes: NDArray[np.int64], influence: NDArray[np.float64], group_of_row: NDArray[np.int64]
) -> tuple[NDArray[np.float64], float] | None:
    """Variance of an AUC over groups of rows, in parts, for any number of classes (Obuchowski 1997).

    Sums of influences per group and class are squared, and multiplied between classes, over the groups. Squares of
    class c have the factor I / (I - 1) of the groups with class c, products of two classes the factor of all groups.
    With one row per group there are no products, and the variance is DeLong's.

    Args:
        classes: Shape (N,), int, 0..K-1, each with a row.
        influence: Shape (N,): contribution of a row to the AUC, minus the mean of its class.
        group_of_row: Shape (N,), int, 0..G-1.

    Returns:
        Variances of the classes, shape (K,), and of their products; None where a class lies in one group.
    """
    num_classes, num_groups = int(classes.max()) + 1, int(group_of_row.max()) + 1
    cell = group_of_row * num_classes + classes
    shape = num_groups, num_classes
    sums = np.bincount(cell, influence, minlength=num_groups * num_classes).reshape(shape)
    holding = (np.bincount(cell, minlength=num_groups * num_classes).reshape(shape) > 0).sum(axis=0)
    if holding.min() < 2:
        return None
    squares = np.square(sums).sum(axis=0)
    crossed = np.square(sums.sum(axis=1)).sum() - squares.sum()
    return holding / (holding - 1) * squares, float(num_groups / (num_groups - 1) * crossed)


def _groups(groups: ArrayLike | None, num_rows: int) -> NDArray[np.int64]:
    return np.arange(num_rows) if groups is None else checks.groups(groups, num_rows)
