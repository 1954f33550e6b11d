"""The picture of labels saved: for each method, how many labels the baseline needs per label of the method."""

from __future__ import annotations

import textwrap
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from histo_monai.errors import InputError
from histo_monai.reports.curve_style import STYLE, lines, require_columns
from histo_monai.reports.drawing import GRAY, INK, PALE

_NUMBERS = ("ratio", "ratio_low", "ratio_high", "ratio_fewest", "ratio_most")
_COLUMNS = ("method", "training", "num_labels", *_NUMBERS, "extrapolated", "reason", "told")
_LETTERS = 64  # Of a reason, on one line.
_ROOM = 1.35  # On either side of the numbers, for arrows.
_ARROW = 15  # Points.


def labels_saved(table: pd.DataFrame) -> Figure:
    """Labels that the baseline needs per label of the method: a dot and a 95 % interval per row, on a log axis.

    An arrow is an open end, "more than" or "less than"; a dot with a white center was extrapolated. Where nothing
    is known, or an end stands open, the reason stands beside it.

    Args:
        table: one row per method, training and number of labels, drawn from the top: method, training and what
            `comparison.label_counts.LabelsSaved.as_dict` gives.

    Raises:
        InputError: If a column is missing, or there is no row.
    """
    require_columns(table, _COLUMNS)
    if table.empty:
        raise InputError("no row to draw: labels saved takes one row per method and training")
    drawn = {(line.method, line.training): line for line in lines(table)}
    rows: list[dict[Any, Any]] = table.to_dict("records")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.0, 1.1 + 0.56 * len(rows)), layout="constrained")
        axis, texts = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
        _axes(axis, texts, table)
        for place, row in enumerate(rows):
            line = drawn[row["method"], row["training"]]
            if not np.isnan(row["ratio"]):
                _draw(axis, place, row, line.color)
            _write_numbers(texts, place, row)
        labels = [
            f"{drawn[row['method'], row['training']].label}, {row['num_labels']:,.0f} labels" for row in rows
        ]
        axis.set_yticks(range(len(rows)), labels, fontsize=9)
        axis.set_ylim(len(rows) - 0.5, -0.5)
    return figure


def _axes(axis: Axes, texts: Axes, table: pd.DataFrame) -> None:
    shown = table[["ratio", "ratio_low", "ratio_high"]].clip(
        table["ratio_fewest"], table["ratio_most"], axis="index"
    )
    numbers = [0.8, 1.25, *shown.to_numpy(np.float64)[shown.notna()]]
    axis.set_xscale("log")
    axis.set_xlim(min(numbers) / _ROOM, max(numbers) * _ROOM)
    axis.axvline(1, color=PALE, linewidth=1.2, zorder=1)
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}×"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("labels that the baseline needs, per label of the method")
    axis.tick_params(labelsize=9)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    texts.set_xlim(0, 1)
    texts.axis("off")


def _draw(axis: Axes, place: int, row: dict[Any, Any], color: str) -> None:
    """The bar between the ends that are stated, an arrow at each that stands open, the dot where there is a value."""
    fewest, most = row["ratio_fewest"], row["ratio_most"]
    ends = [row["ratio_low"], row["ratio_high"]]
    axis.plot(np.clip(ends, fewest, most), [place, place], color=color, linewidth=2, solid_capstyle="butt")
    for is_open, end, points in ((ends[0] <= 0, fewest, -_ARROW), (np.isinf(ends[1]), most, _ARROW)):
        if is_open:
            axis.annotate(
                "",
                xy=(end, place),
                xytext=(points, 0),
                textcoords="offset points",
                arrowprops={"arrowstyle": "<|-", "color": color, "linewidth": 2, "shrinkA": 0, "shrinkB": 0},
            )
    if 0 < row["ratio"] < np.inf:
        face = "white" if row["extrapolated"] else color
        axis.plot(row["ratio"], place, "o", color=color, markerfacecolor=face, markersize=8, zorder=3)


def _write_numbers(texts: Axes, place: int, row: dict[Any, Any]) -> None:
    """The numbers in words, and below them what they rest on where that is not plain."""
    known = not np.isnan(row["ratio"])
    plain = known and row["ratio_low"] > 0 and row["ratio_high"] < np.inf and not row["extrapolated"]
    if known:
        texts.text(0, place if plain else place - 0.2, row["told"], va="center", fontsize=9, color=INK)
    if not plain:
        reason = textwrap.fill(row["reason"], _LETTERS)
        texts.text(0, place + 0.2 * known, reason, va="center", fontsize=7.5, color=GRAY, linespacing=1.05)
