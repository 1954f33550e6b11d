"""Learning curves read backwards: how many labels a score costs, with an interval, or why nobody can know."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histo_monai.evaluation.comparison.label_counts import LabelsNeeded, LabelsSaved
from histo_monai.evaluation.comparison.power_law import PowerLaws
from histo_monai.evaluation.metrics import checks
from histo_monai.utils.process.products import product

FARTHEST = 10.0
"""An extrapolated answer beyond so many times the largest size measured is not given."""

FEWEST_SIZES = 4
"""A power law is fitted to so many sizes or more: its three parameters go through three whatever these say."""

_TAIL = 0.025
_FEWEST_REPLICATES = 40  # One of them is then 2.5 %.
_FEWEST_DEFINED = 0.5
_MOST = 0.5
_NEAR = 1e-12  # Scores this close are equal.


class LearningCurve:
    """Scores of one method by number of labels; larger is better.

    Args:
        num_labels: Shape (L,), positive, in any order. Points of one size are averaged.
        values: Shape (L,), the score at each size, e.g. the mean over seeds. Where less is better, negate it.
        replicates: Shape (L, B), at least 40 bootstrap replicates of the values: column b of all curves that are
            compared comes from one and the same draw of patients and seeds. A column with a NaN is left out.
        limit: the largest score that the metric can take.

    Attributes:
        num_labels: Shape (L',), increasing.
        values: Shape (L',).
        replicates: Shape (L', B).

    Raises:
        ValueError: If shapes disagree, a size is not positive, a value is not finite or above the limit, or there
            are fewer than 40 replicates.
    """

    def __init__(
        self, num_labels: ArrayLike, values: ArrayLike, replicates: ArrayLike, *, limit: float = 1.0
    ) -> None:
        sizes, scores = checks.column("num_labels", num_labels), checks.column("values", values)
        drawn = np.asarray(replicates, np.float64)
        checks.same_length(num_labels=sizes, values=scores)
        if drawn.ndim != 2 or len(drawn) != len(sizes) or drawn.shape[1] < _FEWEST_REPLICATES:
            raise ValueError(
                f"replicates have shape {drawn.shape}: expected {len(sizes)} rows, one per size, "
                f"and at least {_FEWEST_REPLICATES} columns"
            )
        _refuse("num_labels", sizes, sizes <= 0, "a positive number")
        _refuse("values", scores, scores > limit, f"at most the metric's limit, {limit:g}")
        self.limit = limit
        self.num_labels, place = np.unique(sizes, return_inverse=True)
        same = (place == np.arange(len(self.num_labels))[:, None]).astype(np.float64)
        mean = same / same.sum(axis=1, keepdims=True)
        self.values: NDArray[np.float64] = product(mean, scores)
        self.replicates: NDArray[np.float64] = product(mean, drawn)

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """Shape (L', 1 + B): the values, then their replicates."""
        return np.column_stack([self.values, self.replicates])


def isotonic(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest curves that never fall, (L, B) -> (L, B): least squares, all points weigh the same.

    What pooling adjacent violators gives, by its closed form (Robertson, Wright & Dykstra 1988, theorem 1.4.4):
    at each point, the largest over all starts before it of the smallest over all ends after it of the mean.
    """
    num = len(values)
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    fitted = np.full(values.shape, -np.inf)
    for start in range(num):
        lengths = np.arange(1, num - start + 1)[:, None]
        means = (sums[start + 1 :] - sums[start]) / lengths
        smallest = np.minimum.accumulate(means[::-1], axis=0)[::-1]
        fitted[start:] = np.maximum(fitted[start:], smallest)
    return fitted


def labels_needed(
    curve: LearningCurve, score: float, score_replicates: ArrayLike | None = None
) -> LabelsNeeded:
    """How many labels the curve needs to reach a score.

    Within the sizes measured: the isotonic regression of the values, linear in log(number of labels) between
    sizes, and where it is flat the smallest number. Each replicate is read likewise, at its own score; one that
    does not reach its score counts as "more than the largest size", one that starts above it as "fewer than the
    smallest". Where the curve itself does not reach the score, an inverse power law is fitted to the values and
    to each replicate that does not either, if that can be answered for: at least four sizes, a rise beyond the
    noise (95 % interval of the slope in log n above 0), a score below the fitted ceiling in most replicates, an
    answer within 10 times the largest size. Else the answer is what was measured: "more than the largest size".

    The ends are percentiles of the replicates, widened where need be to hold the value. They hold what resampling
    patients and seeds can show; whether the curve goes on as a power law they do not hold.

    Args:
        curve: of the method that needs the labels.
        score_replicates: Shape (B,), of the score, drawn jointly with those of the curve; None: the score is a
            given number.

    Raises:
        ValueError: If the score is NaN or above the metric's limit, or the replicates are not one per replicate of
            the curve.
    """
    targets = _targets(curve, score, score_replicates)
    defined = np.isfinite(curve.table).all(axis=0) & np.isfinite(targets)
    fewest, most = float(curve.num_labels[0]), float(curve.num_labels[-1])
    if defined.mean() < _FEWEST_DEFINED:
        reason = "more than half of the bootstrap replicates are undefined"
        return LabelsNeeded(np.nan, np.nan, np.nan, False, reason, fewest, most)
    table, targets = curve.table[:, defined], targets[defined]
    counts = _within(curve.num_labels, isotonic(table), targets)
    if np.isfinite(counts[0]):
        return LabelsNeeded(*_interval(counts), False, _measured(counts, fewest, most), fewest, most)
    beyond, reason = _beyond(curve, table, targets, counts)
    if beyond is None:
        return LabelsNeeded(*_interval(counts), False, reason, fewest, most)
    return LabelsNeeded(*_interval(beyond), True, reason, fewest, FARTHEST * most)


def fitted_law(curve: LearningCurve) -> PowerLaws | None:
    """The inverse power law through the values, on which `labels_needed` extrapolates; None: none can be answered for.

    Returns:
        One law, B = 1.
    """
    table = curve.table[:, np.isfinite(curve.table).all(axis=0)]
    known = np.isfinite(curve.values).all() and table.shape[1] >= _FEWEST_DEFINED * curve.table.shape[1]
    if not known or _why_no_law(curve.num_labels, table):
        return None
    return PowerLaws.fit(curve.num_labels, table[:, :1], curve.limit)


def labels_saved(
    baseline: LearningCurve, num_labels: float, score: float, score_replicates: ArrayLike | None = None
) -> LabelsSaved:
    """What a method saves that reaches a score with `num_labels` labels: `labels_needed` of the baseline for it.

    Args:
        baseline: curve of the method that is compared with.
        num_labels: that the method used, positive.
        score: that it reached.
        score_replicates: Shape (B,), drawn jointly with the baseline's.

    Raises:
        ValueError: As `labels_needed`, and if `num_labels` is not positive.
    """
    if not 0 < num_labels < np.inf:
        raise ValueError(f"num_labels is {num_labels:g}: expected a positive number")
    return LabelsSaved(labels_needed(baseline, score, score_replicates), float(num_labels))


def _targets(curve: LearningCurve, score: float, replicates: ArrayLike | None) -> NDArray[np.float64]:
    """The score, then that of each replicate, shape (1 + B,)."""
    if not score <= curve.limit:
        raise ValueError(f"the score is {score:g}: expected at most the metric's limit, {curve.limit:g}")
    num = curve.replicates.shape[1]
    drawn = np.full(num, score) if replicates is None else np.asarray(replicates, np.float64)
    if drawn.shape != (num,):
        raise ValueError(f"score_replicates have shape {drawn.shape}: the curve has {num} replicates")
    return np.concatenate([[score], drawn])


def _within(
    sizes: NDArray[np.float64], rising: NDArray[np.float64], targets: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Number of labels at which each rising curve (L, B) reaches its target (B,); 0 below the sizes, inf above."""
    reached = (rising >= targets - _NEAR).argmax(axis=0)
    columns = np.arange(rising.shape[1])
    below = rising[np.maximum(reached - 1, 0), columns]
    step = rising[reached, columns] - below
    share = np.where(step > 0, (targets - below) / np.where(step > 0, step, 1.0), 1.0)
    logs = np.log(sizes)
    between = (1 - share) * logs[np.maximum(reached - 1, 0)] + share * logs[reached]
    counts = np.clip(np.exp(between), sizes[0], sizes[-1])
    counts[rising[0] > targets + _NEAR] = 0.0
    counts[rising[-1] < targets - _NEAR] = np.inf
    return counts


def _beyond(
    curve: LearningCurve,
    table: NDArray[np.float64],
    targets: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> tuple[NDArray[np.float64] | None, str]:
    """Numbers of labels with those beyond the sizes extrapolated, and how; or None, and why not."""
    most = curve.num_labels[-1]
    reason = _why_no_law(curve.num_labels, table)
    if reason:
        return None, f"the score lies above the curve, {reason}"
    laws = PowerLaws.fit(curve.num_labels, table, curve.limit)
    above = (np.isinf(counts) & (targets >= laws.ceiling))[1:].mean()
    share = f"in {above:.1%} of the bootstrap replicates"
    if above > _MOST or targets[0] >= laws.ceiling[0]:
        return None, f"the score lies above what the fitted curve can ever reach, so does it {share}"
    beyond = np.where(np.isinf(counts), np.maximum(laws.labels_for(targets), most), counts)
    if beyond[0] > FARTHEST * most:
        return None, f"extrapolated, the answer lies beyond {FARTHEST:g} times the largest size measured"
    beyond[beyond > FARTHEST * most] = np.inf
    reason = f"extrapolated beyond {most:,.0f} labels by an inverse power law"
    if above > _TAIL:
        return beyond, f"{reason}; the score lies above what that can ever reach {share}"
    if np.isinf(_interval(beyond)[2]):
        return beyond, f"{reason}; the upper end lies beyond {FARTHEST:g} times the largest size measured"
    return beyond, reason


def _why_no_law(sizes: NDArray[np.float64], table: NDArray[np.float64]) -> str:
    """Why no law is fitted to these values and replicates, (L, 1 + B), as the end of a sentence; empty: one is."""
    if len(sizes) < FEWEST_SIZES:
        return (
            f"and with {len(sizes)} of the {FEWEST_SIZES} sizes that a fit takes nothing is known beyond it"
        )
    logs = np.log(sizes) - np.log(sizes).mean()
    rises = np.quantile(product(logs, table[:, 1:]), _TAIL) > 0
    return "" if rises else "which does not rise beyond its noise"


def _measured(counts: NDArray[np.float64], fewest: float, most: float) -> str:
    value, low, high = _interval(counts)
    if value == 0:
        return f"the curve is above the score with the fewest labels measured, {fewest:,.0f}, already"
    open_ends = [
        *([f"fewer than the {fewest:,.0f} measured may be enough"] if low == 0 else []),
        *([f"the {most:,.0f} measured may not be enough"] if np.isinf(high) else []),
    ]
    return "; ".join(["within the sizes measured", *open_ends])


def _interval(counts: NDArray[np.float64]) -> tuple[float, float, float]:
    """Value, low, high, of the value (first) and its replicates; percentiles that stand open are not averaged."""
    low = np.quantile(counts[1:], _TAIL, method="lower")
    high = np.quantile(counts[1:], 1 - _TAIL, method="higher")
    return float(counts[0]), float(min(low, counts[0])), float(max(high, counts[0]))


def _refuse(name: str, values: NDArray[np.float64], wrong: NDArray[np.bool_], expected: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        raise ValueError(f"{name} row {rows[0]} is {values[rows[0]]:g}: expected {expected}")
