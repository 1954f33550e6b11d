"""Figures of patch predictions: confusion, reliability, scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike

from histo_monai.evaluation.metrics import (
    ReliabilityBin,
    expected_calibration_error,
    intraclass_correlation,
    mean_absolute_error,
    prediction_probability,
    reliability,
)
from histo_monai.reports.drawing import COLORS, GRAY, INK, PALE, drawn, new_figure, plain

_MARKERS = "osD^vP"
_WHITE_FROM = 0.55  # cells above this fraction have white digits
_FEWEST_ROWS = 5
_NUM_TENTHS = 10
_LEAST_AREA, _MOST_AREA = 16.0, 400.0
_BAR = 0.86  # fraction of a bin's width
_MOST_LETTERS = 26  # of horizontal class names under a matrix


def confusion(labels: ArrayLike, predictions: Mapping[str, ArrayLike], classes: Sequence[str]) -> np.ndarray:
    """Confusion matrices of the models, (H, W, 3), uint8: true classes in rows, predicted classes in columns.

    Color: fraction of the true class, so that rare classes are visible; number: count.

    Args:
        labels: (N,), int, 0..K-1.
        predictions: model -> predicted classes, (N,), int.
        classes: K names.
    """
    num = len(classes)
    side = np.clip(2.2 + 0.34 * num, 3.4, 5.2)
    figure = new_figure(0.92 * side * len(predictions) + 0.8, side + 0.6 + 0.06 * max(map(len, classes)))
    axes = figure.subplots(1, len(predictions), squeeze=False)[0]
    for axis, (name, predicted) in zip(axes, predictions.items(), strict=True):
        counts = confusion_counts(labels, predicted, num)
        _draw_confusion(axis, counts, classes)
        axis.set_title(f"{name}: {np.trace(counts) / counts.sum():.1%} correct", fontsize=11, color=INK)
        axis.set_xlabel("predicted class", color=INK)
        axis.tick_params(labelleft=axis is axes[0])
    axes[0].set_ylabel("true class", color=INK)
    figure.supxlabel("number of patches; shade: fraction of the true class", fontsize=8.5, color=GRAY)
    return drawn(figure)


def reliability_diagram(
    labels: ArrayLike, probabilities: Mapping[str, ArrayLike], num_bins: int = 15
) -> np.ndarray:
    """Reliability diagram, (H, W, 3), uint8: accuracy against confidence per model, above a histogram of confidence.

    Points below the diagonal are overconfident; marker area grows with the number of rows. The legend states the
    expected calibration error.

    Args:
        labels: (N,), int, 0..K-1.
        probabilities: model -> (N, K).
        num_bins: equal-width bins on 0..1.
    """
    figure = new_figure(9.0, 6.4)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    upper.plot([0, 1], [0, 1], color=PALE, linestyle="--", linewidth=1.2, label="calibrated")
    least_sure = least_right = 1.0
    for i, (name, predicted) in enumerate(probabilities.items()):
        color, marker = COLORS[i % len(COLORS)], _MARKERS[i % len(_MARKERS)]
        bins = [cell for cell in reliability(labels, predicted, num_bins) if cell.count]
        least_sure = min(least_sure, bins[0].low)
        least_right = min(least_right, *(cell.accuracy for cell in bins))
        error = expected_calibration_error(labels, predicted, num_bins)
        _draw_reliability(upper, bins, color, marker, f"{name}, ECE {error:.3f}")
        _draw_histogram(lower, bins, color, i, len(probabilities))
    floor = np.floor(min(least_sure, least_right) * 10) / 10
    upper.set(ylabel="accuracy", xlim=(least_sure - 0.01, 1.01), ylim=(floor - 0.02, 1.02))
    upper.legend(frameon=False, loc="upper left", labelcolor=INK)
    lower.set(xlabel="confidence (largest probability)", ylabel="patches")
    lower.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    for axis in (upper, lower):
        plain(axis)
    return drawn(figure)


def scores(predicted: ArrayLike, ratings: Mapping[str, ArrayLike]) -> np.ndarray:
    """Predicted against rated scores, (H, W, 3), uint8: one panel per rater, with identity line and means of tenths.

    Args:
        predicted: (N,).
        ratings: rater -> scores, (N,), in the unit of `predicted`.
    """
    values = np.asarray(predicted, np.float64)
    both = np.concatenate([values, *(np.asarray(rated, np.float64) for rated in ratings.values())])
    low, high = min(0.0, both.min()), max(1.0, both.max())
    margin = 0.03 * (high - low)
    figure = new_figure(4.5 * len(ratings) + 0.3, 4.8)
    axes = figure.subplots(1, len(ratings), squeeze=False, sharey=True)[0]
    for axis, (name, rated) in zip(axes, ratings.items(), strict=True):
        truth = np.asarray(rated, np.float64)
        axis.plot([low, high], [low, high], color=PALE, linestyle="--", linewidth=1.2, label="equal")
        axis.plot(
            truth, values, "o", color=COLORS[0], markersize=4, alpha=_opacity(len(truth)), markeredgewidth=0
        )
        axis.plot(
            *tenths(truth, values, low, high),
            color=COLORS[1],
            marker="D",
            markersize=5,
            markeredgecolor="white",
            label="mean in each tenth",
        )
        axis.set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin), aspect="equal")
        axis.set_xlabel(name, color=INK)
        axis.set_title(_agreement(truth, values), fontsize=9.5, color=INK)
        plain(axis)
    axes[0].set_ylabel("predicted score", color=INK)
    axes[0].legend(frameon=False, loc="upper left", labelcolor=INK, fontsize=9)
    return drawn(figure)


def confusion_counts(labels: ArrayLike, predicted: ArrayLike, num_classes: int) -> np.ndarray:
    """Counts by true class (first axis) and predicted class, (K, K), int.

    Raises:
        ValueError: lengths differ, there is no row, or a class is outside 0..K-1.
    """
    true, decided = np.asarray(labels, np.int64), np.asarray(predicted, np.int64)
    if true.shape != decided.shape or true.ndim != 1 or not len(true):
        raise ValueError(
            f"labels {true.shape} and predicted {decided.shape}: expected one class per row in each"
        )
    if min(true.min(), decided.min()) < 0 or max(true.max(), decided.max()) >= num_classes:
        raise ValueError(f"a class is outside 0..{num_classes - 1}: there are {num_classes} names")
    return np.bincount(true * num_classes + decided, minlength=num_classes**2).reshape(
        num_classes, num_classes
    )


def tenths(
    truth: np.ndarray, predicted: np.ndarray, low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean reference and mean prediction per tenth of low..high, for tenths with at least five rows."""
    place = np.floor((truth - low) / (high - low) * _NUM_TENTHS)
    place = np.clip(place, 0, _NUM_TENTHS - 1).astype(np.int64)
    counts = np.bincount(place, minlength=_NUM_TENTHS)
    shown = counts >= _FEWEST_ROWS
    x, y = (
        np.bincount(place, values, minlength=_NUM_TENTHS)[shown] / counts[shown]
        for values in (truth, predicted)
    )
    return x, y


def _draw_confusion(axis: Axes, counts: np.ndarray, classes: Sequence[str]) -> None:
    num = len(classes)
    fractions = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axis.imshow(fractions, cmap="Blues", vmin=0, vmax=1)
    size = 11 if num <= 3 else 9.5 if num <= 6 else 8.5
    for true, predicted in np.ndindex(num, num):
        count, fraction = counts[true, predicted], fractions[true, predicted]
        text = f"{count:,}\n{fraction:.0%}" if num <= 4 else f"{count:,}"
        color = "white" if fraction > _WHITE_FROM else INK if count else PALE
        axis.text(predicted, true, text, ha="center", va="center", color=color, fontsize=size)
    crowded = num * max(map(len, classes)) > _MOST_LETTERS
    axis.set_xticks(range(num), classes, rotation=45 * crowded, ha="right" if crowded else "center")
    axis.set_yticks(range(num), classes)
    axis.set_xticks(np.arange(num - 1) + 0.5, minor=True)
    axis.set_yticks(np.arange(num - 1) + 0.5, minor=True)
    axis.grid(which="minor", color="white", linewidth=1.5)
    axis.tick_params(which="both", length=0, labelsize=9, labelcolor=INK)
    axis.spines[:].set_visible(False)


def _draw_reliability(axis: Axes, bins: list[ReliabilityBin], color: str, marker: str, label: str) -> None:
    """Draw a line and its bins, with areas by number of rows."""
    where = [cell.confidence for cell in bins], [cell.accuracy for cell in bins]
    rows = sum(cell.count for cell in bins)
    areas = [_LEAST_AREA + _MOST_AREA * cell.count / rows for cell in bins]
    axis.plot(*where, color=color, linewidth=1.4)
    axis.scatter(*where, s=areas, color=color, marker=marker, edgecolors="white", zorder=3)
    axis.plot([], [], color=color, marker=marker, markersize=7, linewidth=1.4, label=label)


def _draw_histogram(axis: Axes, bins: list[ReliabilityBin], color: str, place: int, num: int) -> None:
    """Draw the fraction of rows per bin; the bars of `num` models are side by side."""
    rows = sum(cell.count for cell in bins)
    width = _BAR * (bins[0].high - bins[0].low) / num
    lefts = [(cell.low + cell.high) / 2 + (place - num / 2) * width for cell in bins]
    axis.bar(lefts, [cell.count / rows for cell in bins], width=width, align="edge", color=color)


def _agreement(truth: np.ndarray, predicted: np.ndarray) -> str:
    icc = intraclass_correlation(np.column_stack([truth, predicted]))
    return (
        f"ICC(2,1) {icc.value:.3f} ({icc.low:.3f}–{icc.high:.3f})\n"
        f"Pₖ {prediction_probability(truth, predicted):.3f}"
        f"   MAE {mean_absolute_error(truth, predicted):.3f}   n = {len(truth):,}"
    )


def _opacity(num: int) -> float:
    """Opacity of a point, lower for many points."""
    return float(np.clip(8 / np.sqrt(num), 0.08, 0.7))
