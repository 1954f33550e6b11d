"""Pictures of sweeps: a metric against the number of labels, mu or n_aug."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from histo_monai.errors import InputError
from histo_monai.reports.curve_style import STYLE, Line, lines, require_columns
from histo_monai.reports.drawing import GRAY
from histo_monai.reports.tables import METRICS

_AXES = {"mu": "mu, unlabeled images per labeled one", "n_aug": "n_aug, operations of the strong view"}
_METRICS = METRICS | {f"icc_{rater.lower()}": f"ICC(2,1) with pathologist {rater}" for rater in "AB"}
_PLACE = ["dataset", "split", "method", "training", "alpha", "mu", "n_aug"]
_COLUMNS = (*_PLACE, "num_labels", "metric", "value", "low", "high")
_DECADES = 0.017  # Between neighbors at one number of labels, on the logarithmic axis.
_STEPS = 0.085  # Between neighbors at one mu or n_aug.
_MOST_ABREAST = 3


def against_labels(points: pd.DataFrame, metric: str) -> Figure:
    """A metric against the number of labels: a color per method, fine-tuned dashed and open, students filled.

    Where the points hold several mu or n_aug there is a panel for each pair, with the fine-tuned models, which
    know neither, in all of them. A point without a value is a cross at the foot of its panel.

    Args:
        points: one row per point, of one dataset and split: dataset, split, method, training (finetune, or a
            semi-supervised method), alpha, num_labels, mu, n_aug (not read where fine-tuned), metric, value, low, high.
            NaN in value: failed. NaN in low and high: no interval is drawn.
        metric: which of the metrics.

    Raises:
        InputError: If a column is missing, no row has the metric, or there are several
            datasets, splits, or points in one place.
    """
    rows = _of_one_metric(points, metric)
    rows = rows.assign(num_labels=_placed(rows))
    panels = _panels(rows, ["mu", "n_aug"])
    with mpl.rc_context(STYLE):
        figure, axes = _grid(len(panels), width=5.4, height=4.3)
        for axis, (title, panel) in zip(axes, panels, strict=True):
            axis.set_xscale("log")
            for line in lines(rows):
                _draw(axis, _on(panel, line), line, "num_labels", _times)
            _label_counts(axis, rows)
            axis.set_title(title)
        _finish(figure, axes, rows, "number of labels, and their share of all")
    return figure


def against(points: pd.DataFrame, axis: Literal["mu", "n_aug"], metric: str) -> Figure:
    """A metric against mu or n_aug after semi-supervised training; at the left, the fine-tuned models it started from.

    There is a panel for each alpha, and for each value of the other of the two.

    Args:
        points: as `against_labels`.
        axis: which of the two.
        metric: which of the metrics.

    Raises:
        InputError: As `against_labels`, and if there are no students.
    """
    rows = _of_one_metric(points, metric)
    trained = rows["training"] != "finetune"
    if not trained.any():
        raise InputError(f"no point of {metric} of a student: nothing depends on {axis}")
    steps = np.unique(rows.loc[trained, axis])
    start = steps[0] - max(1.0, 0.12 * np.ptp(steps))
    panels = _panels(rows.assign(**{axis: rows[axis].where(trained, start)}), ["alpha", *({*_AXES} - {axis})])
    with mpl.rc_context(STYLE):
        figure, axes = _grid(len(panels), width=4.9, height=4.0)
        for panel_axis, (title, panel) in zip(axes, panels, strict=True):
            for line in lines(rows):
                own = _on(panel, line)
                _draw(panel_axis, own, line, axis, _plus)
                if line.training == "finetune" and own["value"].notna().any():
                    panel_axis.axhline(own["value"].iloc[0], color=line.color, linestyle=":", linewidth=1.1)
            texts = [f"{step:g}" for step in steps]
            panel_axis.set_xticks([start, *steps], ["fine-\ntuned", *texts])
            panel_axis.set_xlim(start - 0.6, steps[-1] + 0.6)
            panel_axis.set_title(title)
        _finish(figure, axes, rows, _AXES[axis])
    return figure


def _of_one_metric(points: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows of a metric; fine-tuned points, which know neither mu nor n_aug, once each."""
    require_columns(points, _COLUMNS)
    rows = points.loc[points["metric"] == metric, list(_COLUMNS)]
    if rows.empty:
        known = ", ".join(sorted(set(points["metric"])))
        raise InputError(f"no point of {metric}: there are points of {known or 'nothing'}")
    for name in ("dataset", "split"):
        if rows[name].nunique() > 1:
            raise InputError(f"points of {name} {', '.join(sorted(set(rows[name])))}: expected one")
    trained = rows["training"] != "finetune"
    rows = rows.assign(mu=rows["mu"].where(trained), n_aug=rows["n_aug"].where(trained)).drop_duplicates()
    again = rows.duplicated(_PLACE)
    if again.any():
        place = ", ".join(f"{name} {rows.loc[again, name].iloc[0]}" for name in _PLACE)
        raise InputError(f"two different points of {metric} at {place}: expected one")
    return rows.sort_values("alpha")


def _placed(rows: pd.DataFrame) -> pd.Series:
    """Numbers of labels; where a failed point has none, that of its alpha, or in proportion to others."""
    counts = rows["num_labels"]
    of_alpha = counts.groupby(rows["alpha"]).transform("median")
    filled = counts.fillna(of_alpha).fillna(rows["alpha"] * (counts / rows["alpha"]).median())
    if filled.isna().any():
        raise InputError("num_labels is missing in every row: at least one is expected")
    return filled


def _panels(rows: pd.DataFrame, names: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """The rows by what they share, with a title; a NaN is in all panels."""
    shared = rows[list(names)].dropna().drop_duplicates().sort_values(list(names))
    if shared.empty:
        return [("", rows)]
    panels = []
    for values in shared.itertuples(index=False):
        wanted = [
            (rows[name] == value) | rows[name].isna() for name, value in zip(names, values, strict=True)
        ]
        texts = [_setting(name, value) for name, value in zip(names, values, strict=True)]
        panels.append((", ".join(texts), rows[np.logical_and.reduce(wanted)]))
    return panels


def _on(panel: pd.DataFrame, line: Line) -> pd.DataFrame:
    return panel[(panel["method"] == line.method) & (panel["training"] == line.training)]


def _setting(name: str, value: float) -> str:
    return f"{100 * value:g} % of the labels" if name == "alpha" else f"{name} {value:g}"


def _times(counts: pd.Series, place: float) -> pd.Series:
    return counts * 10 ** (_DECADES * place)


def _plus(steps: pd.Series, place: float) -> pd.Series:
    return steps + _STEPS * place


def _draw(
    axis: Axes, own: pd.DataFrame, line: Line, name: str, moved: Callable[[pd.Series, float], pd.Series]
) -> None:
    """Points joined by a line that breaks where one failed, intervals as bars, all a little beside other lines."""
    own = own.sort_values(name)
    x, failed = moved(own[name], line.place), own["value"].isna()
    axis.vlines(x, own["low"], own["high"], color=line.color, linewidth=1.3, alpha=0.55)
    axis.plot(x, own["value"], zorder=3, **line.style)
    axis.plot(
        x[failed],
        np.full(failed.sum(), 0.025),
        "x",
        color=line.color,
        markersize=6,
        markeredgewidth=1.6,
        transform=axis.get_xaxis_transform(),
    )


def _label_counts(axis: Axes, rows: pd.DataFrame) -> None:
    counts = rows.groupby("alpha")["num_labels"].median()
    texts = [f"{count:,.0f}\n{share:g} %" for share, count in zip(100 * counts.index, counts, strict=True)]
    axis.set_xticks(counts, texts)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlim(counts.min() / 1.25, counts.max() * 1.25)


def _grid(num: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Panels with one scale, as many abreast as are readable, and room for a legend at the right."""
    down = -(-num // _MOST_ABREAST)
    across = -(-num // down)
    figure = Figure(figsize=(width * across + 1.6, height * down), layout="constrained")
    axes = figure.subplots(down, across, sharey=True, squeeze=False).ravel().tolist()
    for unused in axes[num:]:
        unused.set_visible(False)
    return figure, axes[:num]


def _finish(figure: Figure, axes: Sequence[Axes], rows: pd.DataFrame, label: str) -> None:
    drawn = lines(rows)
    keys = [Line2D([], [], label=line.label, **line.style) for line in drawn]
    if rows["value"].isna().any():
        keys.append(Line2D([], [], linestyle="", marker="x", color=GRAY, label="failed"))
    figure.legend(handles=keys, loc="outside right upper", fontsize=9, handlelength=2.8)
    name = str(rows["metric"].iloc[0])
    title = f"{rows['dataset'].iloc[0]}, {rows['split'].iloc[0]}; bars: 95 % intervals"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=GRAY)
    figure.supylabel(_METRICS.get(name, name), fontsize=10)
    for axis in axes:
        axis.set_xlabel(label)
        axis.tick_params(labelsize=9)
