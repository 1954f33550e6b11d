"""Regions and points -> QuPath GeoJSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from histo_monai.slides.annotations.content import is_text
from histo_monai.slides.annotations.frames import Corner, moved, statement
from histo_monai.slides.annotations.regions import DERIVED, Point, Region, class_color
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import whole_file


def write_geojson(
    path: str | Path,
    regions: Iterable[Region],
    points: Iterable[Point] = (),
    bounds_yx: Corner | None = (0, 0),
) -> None:
    """Write GeoJSON for QuPath 0.4 and later: regions become annotations, points detections.

    The write is atomic and deterministic. Coordinates keep every digit. They count from the corner of the slide's
    bounds, as in QuPath, or from the canvas if `bounds_yx` is None; the file states the origin. A class without a color
    gets one from its name.

    Raises:
        InputError: A coordinate or measurement that is not finite, a text that is not Unicode, or an outline of fewer
            than three points. The message names file and region; no file is written.
    """
    path = Path(path)
    regions, points = moved(regions, points, (-bounds_yx[0], -bounds_yx[1]) if bounds_yx else (0, 0))
    features = [
        _feature(f"{path}, region {number}", "annotation", region, _polygon(region))
        for number, region in enumerate(regions, start=1)
    ]
    features += [
        _feature(
            f"{path}, point {number}", "detection", point, {"type": "Point", "coordinates": _xy(point.yx)}
        )
        for number, point in enumerate(points, start=1)
    ]
    about = f'{{"type": "FeatureCollection", {statement(bounds_yx)}, "features": ['
    text = about + ",".join(f"\n{one}" for one in features) + "\n]}\n"
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def _feature(where: str, kind: str, marked: Region | Point, geometry: dict[str, Any]) -> str:
    name = marked.name if isinstance(marked, Region) else ""
    if not all(map(is_text, (marked.label, name, *marked.measurements))):
        raise InputError(
            f"{where}: its class, name or a measurement's name holds an incomplete Unicode character. Fix: rename it."
        )
    properties: dict[str, Any] = {"objectType": kind}
    if isinstance(marked, Region):
        short = min(len(points) for points in (marked.exterior_yx, *marked.holes_yx))
        if short < 3:
            raise InputError(f"{where}: an outline of {short} points. Fix: draw at least three points.")
        if name:
            properties["name"] = name
    if marked.label:
        names = marked.label.split(DERIVED)
        named = {"name": marked.label} if len(names) == 1 else {"names": names}
        properties["classification"] = named | {"color": marked.color or class_color(marked.label)}
    if marked.measurements:
        properties["measurements"] = {name: float(value) for name, value in marked.measurements.items()}
    feature = {"type": "Feature", "geometry": geometry, "properties": properties}
    try:
        return json.dumps(feature, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        raise InputError(
            f"{where}: a coordinate or a measurement is not a finite number. Fix: correct or remove it."
        ) from None


def _polygon(region: Region) -> dict[str, Any]:
    rings = [
        [_xy(point) for point in (*points, points[0])] if len(points) else [] for points in _outlines(region)
    ]
    return {"type": "Polygon", "coordinates": rings}


def _outlines(region: Region) -> list[list[list[float]]]:
    return [np.asarray(points, np.float64).tolist() for points in (region.exterior_yx, *region.holes_yx)]


def _xy(yx: Sequence[float]) -> list[float]:
    """A point [x, y], whole numbers without a decimal point: files of many megabytes get smaller."""
    y, x = (int(value) if float(value).is_integer() else float(value) for value in yx)
    return [x, y]
