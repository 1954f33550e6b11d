"""Vega-Lite charts of sweeps: metrics against labels, and labels saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from histo_monai.evaluation.comparison.power_law import PowerLaws
from histo_monai.reports.site import charts
from histo_monai.reports.site.charts import SCHEMA, Spec

_HEIGHT_PX, _ROW_PX, _NARROW_PX = 340, 30, 480
_ROOM = 1.25  # axis margin factor beyond the smallest and largest number of labels
_DECADES = 0.014  # offset between models at one number of labels
_LAW_STEPS = 40
_STACKED = {"layout": {"bottom": {"anchor": "start", "direction": "vertical", "margin": 6}}}
_DASHES = ([7, 4], [1, 0], [12, 3, 3, 3], [3, 2], [16, 5])
_LINE = {"type": "rule", "strokeDash": [4, 4], "color": "currentColor", "opacity": 0.7}

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Series:
    """Common look of models in all charts: color by pretraining, shape and line by training.

    Attributes:
        names: of the models, in order.
        methods: pretraining methods, in order of colors.
        trainings: fine-tuned, then students, in order of shapes.
    """

    names: Sequence[str]
    methods: Sequence[str]
    trainings: Sequence[str]

    def looks(self, rows: Rows) -> tuple[Spec, Spec, Spec]:
        """Encodings of color and shape with legends, and dashes of the column `line`."""
        color = _channel("method", self.methods, rows)
        shape = _channel("training", self.trainings, rows)
        dashes = [_DASHES[i % len(_DASHES)] for i in range(len(self.trainings))]
        scale = {"domain": list(self.trainings), "range": dashes}
        return color, shape, {"field": "line", "type": "nominal", "scale": scale, "legend": None}

    def place(self, row: Mapping[str, Any]) -> float:
        """Position of a model among all models, 0 in the middle."""
        return self.names.index(row["name"]) - (len(self.names) - 1) / 2

    def beside(self, row: Mapping[str, Any]) -> float:
        """Number of labels with the model's offset."""
        return round(float(row["num_labels"]) * 10 ** (_DECADES * self.place(row)), 4)


def learning_curves(points: Rows, runs: Rows, laws: Rows, series: Series, title: str) -> Spec:
    """Chart of a metric against the number of labels: means with intervals, runs, fitted laws.

    Args:
        points: `name`, `method`, `training`, `num_labels`, `value`, `low`, `high` (None if unknown).
        runs: these columns without low and high, with `encoder`, `seed`.
        laws: `name`, `method`, `num_labels`, `value`; dotted.
    """
    counts = sorted({float(row["num_labels"]) for row in points})
    reach = max([*counts, *(float(row["num_labels"]) for row in laws)])
    beyond = [tick for tick in _round_numbers(counts[-1] * 1.5, reach) if tick <= reach]
    x: Spec = {
        "field": "x", "type": "quantitative", "title": "number of labels",
        "scale": {"type": "log", "domain": [counts[0] / _ROOM, reach * _ROOM], "nice": False},
        "axis": {"values": [*counts, *beyond], "format": ",.0f", "labelOverlap": "greedy"},
    }  # fmt: skip
    y, color, intervals, lines, means = _mean_layers(points, series, title, "num_labels")
    placed = [{**row, "x": series.beside(row), "line": row["training"]} for row in points]
    layers: list[Spec] = [
        {
            "data": {"values": [{**row, "x": row["num_labels"]} for row in laws]},
            "mark": {"type": "line", "strokeDash": [1, 5], "strokeWidth": 2.2, "strokeCap": "round"},
            "encoding": {"y": y, "color": color, "detail": {"field": "name", "type": "nominal"}},
        },
        intervals,
        lines,
        {
            "data": {"values": [{**row, "x": series.beside(row)} for row in runs]},
            "mark": {"type": "point", "filled": False, "size": 26, "opacity": 0.75, "strokeWidth": 1.2},
            "encoding": {"y": y, "color": color, "tooltip": _tooltip("name", "encoder", "seed", "value")},
        },
        means,
    ]
    return _framed(placed, layers if laws else layers[1:], _HEIGHT_PX, {"x": x})


def _mean_layers(points: Rows, series: Series, title: str, at: str) -> tuple[Spec, Spec, Spec, Spec, Spec]:
    """Encodings of y and color, and the layers of means: intervals, lines, points; `at` is the field of x."""
    y: Spec = {"field": "value", "type": "quantitative", "title": title, "scale": {"zero": False}}
    color, shape, dash = series.looks(points)
    tooltip = _tooltip("name", at, "value", "low", "high")
    intervals: Spec = {
        "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.6},
        "encoding": {"y": y | {"field": "low"}, "y2": {"field": "high"}, "color": color, "tooltip": tooltip},
    }
    lines: Spec = {
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {"y": y, "color": color, "strokeDash": dash},
    }
    means: Spec = {
        "mark": {"type": "point", "filled": True, "size": 95, "opacity": 1},
        "encoding": {"y": y, "color": color, "shape": shape, "tooltip": tooltip},
    }
    return y, color, intervals, lines, means


def against_setting(points: Rows, finetuned: Rows, series: Series, setting: str, title: str) -> Spec:
    """Chart of a student metric against mu or n_aug: means with intervals; fine-tuned models dashed.

    Args:
        points: `name`, `method`, `training`, the setting, `value`, `low`, `high` (None if unknown).
        finetuned: `name`, `method`, `value`.
        setting: "mu" or "n_aug".
    """
    values = sorted({float(row[setting]) for row in points})
    step = 0.012 * (values[-1] - values[0])
    x: Spec = {
        "field": "x", "type": "quantitative", "title": setting, "axis": {"values": values, "format": "~g"},
        "scale": {"zero": False, "padding": 20, "nice": False},
    }  # fmt: skip
    y, color, *means = _mean_layers(points, series, title, setting)
    placed = [
        {**row, "x": float(row[setting]) + step * series.place(row), "line": row["training"]}
        for row in points
    ]
    layers: list[Spec] = [
        {
            "data": {"values": list(finetuned)},
            "mark": {"type": "rule", "strokeDash": [4, 4], "strokeWidth": 1.5},
            "encoding": {"x": {"value": 0}, "x2": {"value": "width"}, "y": y, "color": color}
            | {"tooltip": _tooltip("name", "value")},
        },
        *means,
    ]
    for layer in layers[1:]:
        layer["encoding"]["x"] = x
    return _framed(placed, layers, _HEIGHT_PX, {})


def law_rows(
    about: Mapping[str, str], law: Mapping[str, float], fewest: float, reach: float
) -> list[dict[str, Any]]:
    """Points of an inverse power law, evenly spaced on a logarithmic axis.

    Args:
        about: the model, for each row.
        law: `ceiling`, `drop`, `exponent`, `largest` (`evaluation.comparison.power_law.PowerLaws`).
        fewest: smallest number of labels.
    """
    counts = np.geomspace(fewest, reach, _LAW_STEPS)
    ceiling, drop, exponent = (np.array([law[name]]) for name in ("ceiling", "drop", "exponent"))
    scores = PowerLaws(ceiling, drop, exponent, law["largest"]).scores_at(counts)[:, 0]
    return [
        {**about, "num_labels": round(float(count), 3), "value": round(float(score), 6)}
        for count, score in zip(counts, scores, strict=True)
    ]


def ratios(rows: Rows, series: Series) -> Spec:
    """Chart of baseline labels per label of a model, logarithmic, with a line at 1.

    Args:
        rows: `label` (narrow pages show the part before the comma); `method`, `training`; `ratio`, `low`, `high`,
            `fewest`, `most`, as in `LabelsSaved`, 0 and infinity for open ends; `extrapolated`; `text`.
    """
    stated = [_stated(row) for row in rows]
    ends = [0.8, 1.25, *(row[end] for row in stated for end in ("low", "high"))]
    domain = [min(ends) / _ROOM, max(ends) * _ROOM]
    x: Spec = {
        "field": "low", "type": "quantitative", "title": "baseline labels / model labels",
        "scale": {"type": "log", "domain": domain, "nice": False},
        "axis": {
            "values": _round_numbers(*domain), "labelOverlap": "greedy",
            "labelExpr": "format(datum.value, '~g') + '×'",
        },
    }  # fmt: skip
    color, shape, _ = series.looks(rows)
    at_value = {"x": x | {"field": "ratio"}, "color": color}
    layers: list[Spec] = [
        {
            "data": {"values": [{}]}, "mark": _LINE,
            "encoding": {"x": {"datum": 1}, "y": {"value": 0}, "y2": {"value": "height"}, "tooltip": {"value": None}},
        },
        {"mark": {"type": "rule", "strokeWidth": 2.5}, "encoding": {"x": x, "x2": {"field": "high"}, "color": color}},
        _arrow("low", "triangle-left", x, color),
        _arrow("high", "triangle-right", x, color),
        {
            "transform": [{"filter": "datum.known && !datum.extrapolated"}],
            "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
            "encoding": at_value | {"shape": shape},
        },
        {
            "transform": [{"filter": "datum.known && datum.extrapolated"}],
            "mark": {"type": "point", "filled": False, "size": 110, "opacity": 1, "strokeWidth": 2.2},
            "encoding": at_value | {"shape": shape | {"legend": None}},
        },
    ]  # fmt: skip
    short = {"labelExpr": f"containerSize()[0] < {_NARROW_PX} ? split(datum.label, ',')[0] : datum.label"}
    y: Spec = {
        "field": "label",
        "type": "nominal",
        "sort": [row["label"] for row in rows],
        "title": None,
        "axis": short,
    }
    tooltip: list[Spec] = [{"field": name, "type": "nominal"} for name in ("label", "text")]
    spec = _framed(stated, layers, _ROW_PX * len(rows), {"y": y, "tooltip": tooltip})
    return spec | {"resolve": {"scale": {"shape": "independent"}}}  # keeps the legend filled


def values_with_runs(points: Rows, runs: Rows, title: str) -> Spec:
    """Chart of values at one number of labels with intervals; a tick per run (`name`, `value`, `encoder`, `seed`)."""
    spec = charts.intervals(points, title)
    strokes: Spec = {
        "data": {"values": list(runs)},
        "mark": {"type": "tick", "thickness": 1.6, "size": 12, "color": "currentColor", "opacity": 0.7},
        "encoding": {
            "x": {"field": "value", "type": "quantitative"},
            "y": {"field": "name", "type": "nominal", "sort": [row["name"] for row in points], "title": None},
            "tooltip": _tooltip("name", "encoder", "seed", "value"),
        },
    }
    return spec | {"layer": [*spec["layer"], strokes]}


def _channel(field: str, order: Sequence[str], rows: Rows) -> Spec:
    """Encoding channel, equal in all charts, with a legend of present values."""
    present = {row[field] for row in rows}
    ink = (
        {} if field == "method" else {"symbolFillColor": "currentColor", "symbolStrokeColor": "currentColor"}
    )
    legend = {
        "values": [name for name in order if name in present],
        "symbolOpacity": 1,
        **ink,
    }
    return {"field": field, "type": "nominal", "scale": {"domain": list(order)}, "legend": legend}


def _stated(row: Mapping[str, Any]) -> dict[str, Any]:
    """Row with finite ends, and marks of open ends."""
    fewest, most = row["fewest"], row["most"]
    low, ratio, high = (float(np.clip(row[end], fewest, most)) for end in ("low", "ratio", "high"))
    return {
        **{name: row[name] for name in ("label", "method", "training", "text")},
        "extrapolated": bool(row["extrapolated"]),
        "low": round(low, 6), "ratio": round(ratio, 6), "high": round(high, 6),
        "known": bool(0 < row["ratio"] < np.inf),
        "open_low": bool(row["low"] <= 0), "open_high": bool(np.isinf(row["high"])),
    }  # fmt: skip


def _arrow(end: str, shape: str, x: Spec, color: Spec) -> Spec:
    """Arrow mark at an open end."""
    return {
        "transform": [{"filter": f"datum.open_{end}"}],
        "mark": {"type": "point", "filled": True, "size": 90, "shape": shape, "opacity": 1},
        "encoding": {"x": x | {"field": end}, "color": color},
    }


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, ... between two numbers."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    numbers = [float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)]
    return [number for number in numbers if low <= number <= high]


def _tooltip(*names: str) -> list[Spec]:
    formats = {"num_labels": ",.0f", "encoder": "d", "seed": "d"}
    return [
        {"field": name, "type": "nominal"}
        if name == "name"
        else {
            "field": name,
            "type": "quantitative",
            "format": formats.get(name, ".3f"),
            "title": name.replace("num_", ""),
        }
        for name in names
    ]


def _framed(rows: Rows, layers: Sequence[Spec], height: int, encoding: Spec) -> Spec:
    """Chart of layers over common rows; layers with own rows share the scales."""
    return {
        "$schema": SCHEMA, "width": "container", "height": height, "config": {"legend": _STACKED},
        "data": {"values": list(rows)}, "encoding": encoding, "layer": list(layers),
    }  # fmt: skip
