"""Vega-Lite charts of the page; the page sets colors and fonts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Schema identifier; no request is made."""
_ROW_PX = 30
_HEIGHT_PX = 280
_RULE = {"type": "rule", "strokeDash": [4, 4], "color": "currentColor", "opacity": 0.55}
_MOST_POINTS = 4000
_TICKS = 8


def intervals(
    rows: Sequence[Mapping[str, Any]], title: str, *, zero: bool = False, kinds: Sequence[str] = ()
) -> Spec:
    """Chart of values with intervals, one row each.

    Args:
        rows: `name`, `value`, `low`, `high` (None if unknown), `kind` (color).
        zero: whether to draw a line at 0, for differences.
        kinds: with fixed colors; others take the next color.
    """
    names = [row["name"] for row in rows]
    y = {"field": "name", "type": "nominal", "sort": names, "title": None}
    there = list(dict.fromkeys(row["kind"] for row in rows))
    of_kind = {"domain": list(dict.fromkeys([*kinds, *there]))}
    legend = {"values": [kind for kind in of_kind["domain"] if kind in there]}
    color = {"field": "kind", "type": "nominal", "scale": of_kind, "legend": legend}
    tooltip = [{"field": name, "type": "nominal"} for name in ("name",)]
    tooltip += [{"field": name, "type": "quantitative", "format": ".3f"} for name in ("value", "low", "high")]
    scale = {"zero": False, "nice": True}
    layers: list[Spec] = [
        {
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {
                "x": {"field": "low", "type": "quantitative", "scale": scale, "title": title},
                "x2": {"field": "high"},
                "color": color,
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
            "encoding": {
                "x": {"field": "value", "type": "quantitative", "scale": scale, "title": title},
                "color": color,
                "shape": color,
            },
        },
    ]
    if zero:
        layers.insert(0, {"data": {"values": [{}]}, "mark": _RULE, "encoding": {"x": {"datum": 0}}})
    encoding: Spec = {"y": y, "tooltip": tooltip}
    for layer in layers[zero:]:
        layer["encoding"] |= encoding
    return _framed({"data": {"values": list(rows)}, "layer": layers}, height=_ROW_PX * len(names))


def curves(rows: Sequence[Mapping[str, Any]], title: str, epochs: int) -> Spec:
    """Chart of values per epoch, one line per `name`; rows: `epoch`, `value`, `name`."""
    order = list(dict.fromkeys(row["name"] for row in rows))
    return _framed(
        {
            "data": {"values": list(rows)},
            "mark": {"type": "line", "point": {"filled": True, "size": 45}, "strokeWidth": 2},
            "encoding": {
                "x": {
                    "field": "epoch", "type": "quantitative", "title": "epoch",
                    "axis": {"tickMinStep": 1, "format": "d", "tickCount": min(epochs, 12)},
                    "scale": {"nice": False},
                },
                "y": {"field": "value", "type": "quantitative", "title": title, "scale": {"zero": False}},
                "color": {"field": "name", "type": "nominal", "sort": order},
                "strokeDash": {"field": "name", "type": "nominal", "sort": order},
                "tooltip": _tooltip("name", "epoch", "value"),
            },
        }
    )  # fmt: skip


def steps(
    rows: Sequence[Mapping[str, Any]], x: str, y: str, *, diagonal: bool = False, log: bool = False
) -> Spec:
    """Chart of sensitivity curves; rows: `x`, `y`, `name` of each corner in order.

    Args:
        x: title of the horizontal axis.
        diagonal: whether to draw the chance line.
        log: whether the horizontal axis is logarithmic.
    """
    order = list(dict.fromkeys(row["name"] for row in rows))
    scale: Spec = {"type": "log"} if log else {"domain": [0, 1]}
    line: Spec = {
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2.5},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": x, "scale": scale},
            "y": {"field": "y", "type": "quantitative", "title": y, "scale": {"domain": [0, 1]}},
            "color": {"field": "name", "type": "nominal", "sort": order},
            "strokeDash": {"field": "name", "type": "nominal", "sort": order},
            "order": {"field": "i", "type": "quantitative"},
            "tooltip": _tooltip("name", "x", "y"),
        },
    }
    chance: Spec = {
        "data": {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]},
        "mark": {"type": "line", "strokeDash": [4, 4], "color": "currentColor", "opacity": 0.5},
        "encoding": {
            "x": {"field": "x", "type": "quantitative"},
            "y": {"field": "y", "type": "quantitative"},
        },
    }
    numbered = [{**row, "i": i} for i, row in enumerate(rows)]
    return _framed({"data": {"values": numbered}, "layer": [chance, line] if diagonal else [line]})


def reliability(rows: Sequence[Mapping[str, Any]]) -> Spec:
    """Reliability chart; rows: `name`, `confidence`, `accuracy`, `patches` of each bin."""
    order = list(dict.fromkeys(row["name"] for row in rows))
    name = {"field": "name", "type": "nominal", "sort": order}
    x = {"field": "confidence", "type": "quantitative", "title": "confidence", "scale": {"zero": False}}
    y = {
        "field": "accuracy",
        "type": "quantitative",
        "title": "accuracy",
        "scale": {"domain": [0, 1]},
    }
    least = min((row["confidence"] for row in rows), default=0.0)
    diagonal: Spec = {
        "data": {"values": [{"confidence": v, "accuracy": v} for v in (least, 1)]},
        "mark": {"type": "line", "strokeDash": [4, 4], "color": "currentColor", "opacity": 0.5},
        "encoding": {"x": x, "y": y},
    }
    points: Spec = {
        "mark": {"type": "point", "filled": True, "opacity": 0.85},
        "encoding": {
            "x": x, "y": y, "color": name, "shape": name,
            "size": {"field": "patches", "type": "quantitative", "legend": None, "scale": {"range": [20, 500]}},
            "tooltip": _tooltip("name", "confidence", "accuracy", "patches"),
        },
    }  # fmt: skip
    return _framed({"data": {"values": list(rows)}, "layer": [diagonal, points]})


def confusion(counts: ArrayLike, classes: Sequence[str]) -> Spec:
    """Confusion chart: true classes in rows, predicted classes in columns; shade: fraction of the true class.

    Args:
        counts: (K, K), int.
        classes: K names.
    """
    counts = np.asarray(counts)
    fractions = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    rows = [
        {
            "true": true,
            "given": given,
            "patches": int(counts[i, j]),
            "fraction": round(float(fractions[i, j]), 4),
        }
        for i, true in enumerate(classes)
        for j, given in enumerate(classes)
    ]
    sort = list(classes)
    shade = {"scheme": "blues", "domain": [0, 1]}
    ink = {"condition": {"test": "datum.fraction > 0.55", "value": "white"}, "value": "#1c2024"}
    across = {"field": "given", "type": "nominal", "sort": sort, "title": "predicted by the model"}
    color = {"field": "fraction", "type": "quantitative", "legend": None, "scale": shade}
    text = {"field": "patches", "type": "quantitative"}
    spec: Spec = {
        "data": {"values": rows},
        "encoding": {
            "x": across | {"axis": {"labelAngle": -35}},
            "y": {"field": "true", "type": "nominal", "sort": sort, "title": "true class"},
            "tooltip": _tooltip("true", "given", "patches", "fraction"),
        },
        "layer": [
            {"mark": "rect", "encoding": {"color": color}},
            {"mark": {"type": "text", "fontSize": 12.5}, "encoding": {"text": text, "color": ink}},
        ],
    }
    return _framed(spec, height=_ROW_PX * len(classes))


def scatter(references: ArrayLike, predictions: ArrayLike, reference_title: str) -> Spec:
    """Chart of predicted against rated scores; many patches are subsampled.

    Args:
        references: (n,), scores.
        predictions: (n,).
        reference_title: axis title of the references.
    """
    known, given = np.asarray(references, float), np.asarray(predictions, float)
    shown = slice(None, None, max(1, len(known) // _MOST_POINTS))
    rows = [
        {"reference": round(float(a), 4), "predicted": round(float(b), 4)}
        for a, b in zip(known[shown], given[shown], strict=True)
    ]
    x = {"field": "reference", "type": "quantitative", "title": reference_title}
    y = {"field": "predicted", "type": "quantitative", "title": "score by the model"}
    ends = [float(min(known.min(), given.min())), float(max(known.max(), given.max()))]
    diagonal: Spec = {
        "data": {"values": [{"reference": v, "predicted": v} for v in ends]},
        "mark": {"type": "line", "strokeDash": [4, 4], "color": "currentColor", "opacity": 0.5},
        "encoding": {"x": x, "y": y},
    }
    points: Spec = {
        "mark": {"type": "point", "filled": True, "opacity": 0.35, "size": 28},
        "encoding": {"x": x, "y": y, "tooltip": _tooltip("reference", "predicted")},
    }
    return _framed({"data": {"values": rows}, "layer": [diagonal, points]})


def _framed(spec: Spec, height: int = _HEIGHT_PX) -> Spec:
    few = {"axisXQuantitative": {"tickCount": _TICKS}}
    return {"$schema": SCHEMA, "width": "container", "height": height, "config": few} | spec


def _tooltip(*names: str) -> list[Spec]:
    numbers = {"epoch", "patches"}
    return [
        {"field": name, "type": "nominal"}
        if name in ("name", "true", "given")
        else {"field": name, "type": "quantitative", "format": ",d" if name in numbers else ".3f"}
        for name in names
    ]
