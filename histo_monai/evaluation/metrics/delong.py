"""Area under the ROC curve, its interval by row or by patient, and the test between two scores of the same rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from histo_monai.evaluation.metrics import checks
from histo_monai.evaluation.metrics.estimate import Estimate


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


def auc(
    labels: ArrayLike, scores: ArrayLike, confidence: float = 0.95, *, groups: ArrayLike | None = None
) -> Estimate:
    """Area under the ROC curve: the chance that a positive row scores above a negative one, ties counting half.

    The interval is DeLong's plain normal one, clipped to 0..1: value ± 1.96 standard errors, the one that
    papers and other software print. DeLong, DeLong & Clarke-Pearson 1988, in O(n log n) by midranks as
    Sun & Xu 2014. With `groups` the variance is that of whole patients, Obuchowski 1997: rows of one patient
    resemble each other, and DeLong's own interval is then too narrow. Where each patient has one row it is DeLong's.

    Where a class lies in one group its variance is unknown and the interval is NaN. Where the two classes are
    separated completely (value 1 or 0) DeLong's variance is zero, which says nothing of the uncertainty; then
    the interval is the exact binomial one of as many disjoint pairs as groups hold the rarer class, all of
    which came out alike: conservative, and never empty.

    Args:
        labels: Shape (n,), 0 or 1.
        scores: Shape (n,); larger means more likely 1; any unit.
        groups: Shape (n,), the patient or slide of each row; None: rows are independent.

    Returns:
        n is the number of groups.

    Raises:
        ValueError: If a label is not 0 or 1, a class is absent, a score is NaN, a group is missing, or the lengths
            differ.
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
    """Two-tailed test of equal AUCs of two scores of the same rows (DeLong et al. 1988; Sun & Xu 2014).

    Scores that order every pair alike differ by exactly 0: z is 0, p is 1. Where the standard error is zero
    although the AUCs differ (complete separation against a constant score), or a class lies in one group, the
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
    """Per positive row the negatives below it, per negative row the positives above it; ties count half.

    A row's rank among all rows minus its rank among its own class is the number of the other class below it:
    two sorts instead of all pairs. The numbers are halves, hence exact.
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
    """Of an AUC, or of a difference of AUCs when both are differences of placements; NaN where it is unknown."""
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
    """Variance of an AUC over whole groups of rows, in parts (Obuchowski 1997), for any number of classes.

    The sums of the influences of a group over each class, squared and crossed over the groups; squares of class c carry
    the factor I / (I - 1) of the groups that hold c, products of two classes that of all groups. Where each row is its
    own group nothing is crossed, and it is DeLong's variance.

    Args:
        classes: Shape (N,), int, 0..K-1, each with a row.
        influence: Shape (N,): by how much a row lifts the AUC, more than the mean row of its class.
        group_of_row: Shape (N,), int, 0..G-1.

    Returns:
        Of the classes, shape (K,), and of their products; None where a class lies in one group.
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
