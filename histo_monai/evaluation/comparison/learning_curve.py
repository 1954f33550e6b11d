"""Number of labels for a score, from learning curves, with an interval or the reason why it is unknown."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histo_monai.evaluation.comparison.label_counts import LabelsNeeded, LabelsSaved
from histo_monai.evaluation.comparison.power_law import PowerLaws
from histo_monai.evaluation.metrics import checks
from histo_monai.utils.process.products import product

FARTHEST = 10.0
"""Farthest extrapolation, in multiples of the largest size measured."""

FEWEST_SIZES = 4
"""Fewest sizes for a power law; its three parameters fit any three sizes exactly."""

_TAIL = 0.025
_FEWEST_REPLICATES = 40  # One of them is then 2.5 %.
_FEWEST_DEFINED = 0.5
_MOST = 0.5
_NEAR = 1e-12  # Scores this close are equal.


class LearningCurve:
    """Scores of one method by number of labels; larger is better.

    Args:
        num_labels: Shape (L,), positive, in any order. Points of one size are averaged.
        values: Shape (L,), the score at each size, e.g. the mean over seeds. Negate it where less is better.
        replicates: Shape (L, B), at least 40 bootstrap replicates of the values. Column b of all compared curves is of
            one resampling of patients and seeds. A column with a NaN is left out.
        limit: the largest score that the metric can take.

    Attributes:
        num_labels: Shape (L',), increasing.
        values: Shape (L',).
        replicates: Shape (L', B).

    Raises:
        ValueError: shapes differ, a size is not positive, a value is not finite or above the limit, or there are fewer
            than 40 replicates.
    """

    def __init__(
        self, num_labels: ArrayLike, values: ArrayLike, replicates: ArrayLike, *, limit: float = 1.0
    ) -> None:
        sizes, scores = checks.column("num_labels", num_labels), checks.column("values", values)
        samples = np.asarray(replicates, np.float64)
        checks.same_length(num_labels=sizes, values=scores)
        if samples.ndim != 2 or len(samples) != len(sizes) or samples.shape[1] < _FEWEST_REPLICATES:
            raise ValueError(
                f"replicates have shape {samples.shape}: expected {len(sizes)} rows, one per size, "
                f"and at least {_FEWEST_REPLICATES} columns"
            )
        _refuse("num_labels", sizes, sizes <= 0, "a positive number")
        _refuse("values", scores, scores > limit, f"at most the metric's limit, {limit:g}")
        self.limit = limit
        self.num_labels, place = np.unique(sizes, return_inverse=True)
        same = (place == np.arange(len(self.num_labels))[:, None]).astype(np.float64)
        mean = same / same.sum(axis=1, keepdims=True)
        self.values: NDArray[np.float64] = product(mean, scores)
        self.replicates: NDArray[np.float64] = product(mean, samples)

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """Values, then replicates, shape (L', 1 + B)."""
        return np.column_stack([self.values, self.replicates])


def isotonic(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Nearest non-decreasing curves by least squares with equal weights, (L, B) -> (L, B).

    Closed form of pooling adjacent violators (Robertson, Wright & Dykstra 1988, theorem 1.4.4): at each point, the
    largest over all starts before it of the smallest over all ends after it of the mean.
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
    """Number of labels for a score, on a learning curve.

    Within the sizes measured: isotonic regression of the values, linear in log(number of labels) between sizes; the
    smallest number on flat parts. Each replicate is evaluated at its own score. A replicate below its score counts as
    "more than the largest size", a replicate that starts above its score as "fewer than the smallest".

    Where the curve does not reach the score, an inverse power law is fitted to the values and to each replicate that
    does not reach its score. Conditions: at least four sizes; a rise beyond the noise (95 % interval of the slope in
    log n above 0); a score below the fitted ceiling in most replicates; a number within 10 times the largest size.
    Otherwise the result is "more than the largest size".

    The limits are percentiles of the replicates, widened to include the value. They cover resampling of patients and
    seeds, not deviations from a power law.

    Args:
        score_replicates: Shape (B,), of the score, in the resamplings of the curve; None: the score is a given number.

    Raises:
        ValueError: the score is NaN or above the metric's limit, or there is not one score replicate per replicate of
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
    """Inverse power law through the values, for `labels_needed`; None where its conditions are not met.

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
    """Labels that a method saves: the baseline's labels for the method's score, relative to the method's.

    Args:
        baseline: curve of the baseline.
        num_labels: labels of the method, positive.
        score: score of the method.
        score_replicates: Shape (B,), in the resamplings of the baseline.

    Raises:
        ValueError: as `labels_needed`, or `num_labels` is not positive.
    """
    if not 0 < num_labels < np.inf:
        raise ValueError(f"num_labels is {num_labels:g}: expected a positive number")
    return LabelsSaved(labels_needed(baseline, score, score_replicates), float(num_labels))


def _targets(curve: LearningCurve, score: float, replicates: ArrayLike | None) -> NDArray[np.float64]:
    """Score, then its replicates, shape (1 + B,)."""
    if not score <= curve.limit:
        raise ValueError(f"the score is {score:g}: expected at most the metric's limit, {curve.limit:g}")
    num = curve.replicates.shape[1]
    samples = np.full(num, score) if replicates is None else np.asarray(replicates, np.float64)
    if samples.shape != (num,):
        raise ValueError(f"score_replicates have shape {samples.shape}: the curve has {num} replicates")
    return np.concatenate([[score], samples])


def _within(
    sizes: NDArray[np.float64], rising: NDArray[np.float64], targets: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Number of labels at which each rising curve (L, B) reaches its target (B,); 0 below the sizes, inf above."""
    reached = (rising >= targets - _NEAR).argmax(axis=0)
    columns = np.arange(rising.shape[1])
    below = rising[np.maximum(reached - 1, 0), columns]
    step = rising[reached, columns] - below
    weight = np.where(step > 0, (targets - below) / np.where(step > 0, step, 1.0), 1.0)
    logs = np.log(sizes)
    between = (1 - weight) * logs[np.maximum(reached - 1, 0)] + weight * logs[reached]
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
    """Numbers of labels, extrapolated beyond the sizes, and the basis; or None and the reason."""
    most = curve.num_labels[-1]
    reason = _why_no_law(curve.num_labels, table)
    if reason:
        return None, f"the score lies above the curve; {reason}"
    laws = PowerLaws.fit(curve.num_labels, table, curve.limit)
    above = (np.isinf(counts) & (targets >= laws.ceiling))[1:].mean()
    replicates = f"{above:.1%} of the bootstrap replicates"
    if above > _MOST or targets[0] >= laws.ceiling[0]:
        return None, f"the score lies above the ceiling of the fitted curve, also in {replicates}"
    beyond = np.where(np.isinf(counts), np.maximum(laws.labels_for(targets), most), counts)
    if beyond[0] > FARTHEST * most:
        return None, f"the extrapolated number lies beyond {FARTHEST:g} times the largest size measured"
    beyond[beyond > FARTHEST * most] = np.inf
    reason = f"extrapolated beyond {most:,.0f} labels by an inverse power law"
    if above > _TAIL:
        return beyond, f"{reason}; the score lies above its ceiling in {replicates}"
    if np.isinf(_interval(beyond)[2]):
        return beyond, f"{reason}; the upper limit lies beyond {FARTHEST:g} times the largest size measured"
    return beyond, reason


def _why_no_law(sizes: NDArray[np.float64], table: NDArray[np.float64]) -> str:
    """Reason why no law is fitted to values and replicates (L, 1 + B); empty: a law is fitted."""
    if len(sizes) < FEWEST_SIZES:
        return f"it has {len(sizes)} sizes, and extrapolation needs {FEWEST_SIZES}"
    logs = np.log(sizes) - np.log(sizes).mean()
    rises = np.quantile(product(logs, table[:, 1:]), _TAIL) > 0
    return "" if rises else "the curve does not rise beyond its noise"


def _measured(counts: NDArray[np.float64], fewest: float, most: float) -> str:
    value, low, high = _interval(counts)
    if value == 0:
        return f"the curve is above the score at the fewest labels measured, {fewest:,.0f}"
    open_limits = [
        *([f"fewer than the {fewest:,.0f} measured may be enough"] if low == 0 else []),
        *([f"the {most:,.0f} measured may not be enough"] if np.isinf(high) else []),
    ]
    return "; ".join(["within the sizes measured", *open_limits])


def _interval(counts: NDArray[np.float64]) -> tuple[float, float, float]:
    """Value, lower and upper limit, from the value (first) and its replicates; open percentiles are not averaged."""
    low = np.quantile(counts[1:], _TAIL, method="lower")
    high = np.quantile(counts[1:], 1 - _TAIL, method="higher")
    return float(counts[0]), float(min(low, counts[0])), float(max(high, counts[0]))


def _refuse(name: str, values: NDArray[np.float64], wrong: NDArray[np.bool_], expected: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        raise ValueError(f"{name} row {rows[0]} is {values[rows[0]]:g}: expected {expected}")
