"""Forest plot of the comparison: values and intervals of all models, one panel per metric."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from histo_monai.evaluation.comparison.rows import REFERENCE, Row
from histo_monai.reports.drawing import COLORS, GRAY, INK, PALE, drawn, new_figure
from histo_monai.reports.tables import METRICS, SplitTable, in_words, number

_FINETUNED, _STUDENTS, _COLOR, _BASELINES = (COLORS[0], "o"), (COLORS[1], "D"), (GRAY, "s"), (GRAY, "^")
_ROW, _PANEL, _NAMES, _LETTER = 0.34, 3.5, 1.6, 0.085  # Inches.
_TEXT = 0.56  # left edge of the numbers, fraction of a panel's width


def forest(title: str, splits: Sequence[SplitTable]) -> np.ndarray:
    """Forest plot, (H, W, 3), uint8: a row per model, a panel per metric, 95 % intervals, best value in bold.

    Open diamonds are published numbers.

    Args:
        splits: from top to bottom.
    """
    most = max(len(split.metrics) for split in splits)
    heights = [len(split.models) + 2.4 for split in splits]
    longest = max(len(in_words(model)) for split in splits for model in split.models)
    figure = new_figure(max(_NAMES, _LETTER * longest) + _PANEL * most, 0.8 + _ROW * sum(heights))
    figure.suptitle(title, color=INK, fontsize=12, x=0.01, ha="left")
    for split, strip in zip(
        splits, figure.subfigures(len(splits), 1, height_ratios=heights, squeeze=False)[:, 0], strict=True
    ):
        paper = "; open diamond: published (Srinidhi 2022)" * bool(split.table["paper_value"].notna().any())
        strip.suptitle(f"{split.split}: {split.about}{paper}", color=GRAY, fontsize=9.5, x=0.01, ha="left")
        axes = strip.subplots(1, most, sharey=True, squeeze=False)[0]
        for axis, metric in zip(axes, split.metrics, strict=False):
            _draw(axis, split, metric)
        for axis in axes[len(split.metrics) :]:
            axis.set_visible(False)
    return drawn(figure)


def _draw(axis: Axes, split: SplitTable, metric: str) -> None:
    models = split.models
    rows = [split.row(model, metric) for model in models]
    low, high = _range(rows)
    for place, (model, row) in enumerate(zip(models, rows, strict=True)):
        color, marker = _look(Row.of(model))
        axis.plot([row.low, row.high], [place, place], color=color, linewidth=1.6, solid_capstyle="butt")
        axis.plot(row.value, place, marker, color=color, markersize=6.5, markeredgecolor="white")
        if not pd.isna(row.paper_value):
            axis.plot(
                row.paper_value, place, "D", markersize=7.5, markerfacecolor="none", markeredgecolor=INK
            )
        weight = "bold" if row.value == split.best(metric) else "normal"
        axis.text(
            1.0, place, number(row.value, row.low, row.high), transform=axis.get_yaxis_transform(), ha="right",
            va="center", fontsize=8.5, color=INK, fontweight=weight,
        )  # fmt: skip
    axis.set_xlim(low, low + (high - low) / _TEXT)
    axis.set_ylim(len(models) - 0.4, -0.6)
    axis.set_title(METRICS.get(metric, metric), fontsize=10, color=INK, loc="left")
    axis.set_yticks(range(len(models)), [in_words(model) for model in models])
    axis.set_xticks(_ticks(low, high))
    axis.tick_params(color=PALE, labelcolor=INK, labelsize=8.5)
    axis.tick_params(axis="y", length=0, labelsize=9)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.spines["bottom"].set_color(PALE)
    axis.spines["bottom"].set_bounds(low, high)
    axis.grid(axis="x", color="#eeeeee", linewidth=0.8)
    axis.set_axisbelow(True)
    for place, (above, below) in enumerate(pairwise(models)):
        if Row.of(above).training != Row.of(below).training:
            axis.axhline(place + 0.5, color=PALE, linewidth=0.8)


def _look(row: Row) -> tuple[str, str]:
    """Color and marker of a row."""
    if row.is_network:
        return _STUDENTS if row.student else _FINETUNED
    return _COLOR if row == REFERENCE else _BASELINES


def _range(rows: Sequence[Any]) -> tuple[float, float]:
    """Range of all drawn values of a panel, with a margin."""
    ends = [number for row in rows for number in (row.value, row.low, row.high, row.paper_value)]
    known = [number for number in ends if not pd.isna(number)] or [0.0, 1.0]
    margin = max(0.05 * (max(known) - min(known)), 0.01)
    return min(known) - margin, max(known) + margin


def _ticks(low: float, high: float) -> list[float]:
    """Three to five round numbers in the range."""
    return [tick for tick in MaxNLocator(nbins=4).tick_values(low, high) if low <= tick <= high]
