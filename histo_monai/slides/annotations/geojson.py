"""GeoJSON, as QuPath writes and reads it <-> regions and points."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.annotations.regions import Point, Region, class_color
from histo_monai.storage import whole_file

_LOG = logging.getLogger(__name__)

_DERIVED = ": "
"""Between the names of a class that QuPath derives from another: "Tumor: Positive"."""

_Found = tuple[list[Region], list[Point]]


def write_geojson(path: str | Path, regions: Iterable[Region], points: Iterable[Point] = ()) -> None:
    """Write what QuPath 0.4 and later imports: regions become annotations, points detections.

    The file appears whole or not at all, and the same input gives the same bytes. Coordinates keep every digit:
    `read_geojson` gives back the same numbers. The color of a class comes from its name.

    Raises:
        ValueError: a region or point has a coordinate or measurement that is not a finite number, or an outline fewer
            than three points; names file and region. Nothing is written.
    """
    path = Path(path)
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
    text = '{"type": "FeatureCollection", "features": [' + ",".join(f"\n{one}" for one in features) + "\n]}\n"
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def _feature(where: str, kind: str, marked: Region | Point, geometry: dict[str, Any]) -> str:
    properties: dict[str, Any] = {"objectType": kind}
    if isinstance(marked, Region):
        short = min(len(points) for points in (marked.exterior_yx, *marked.holes_yx))
        if short < 3:
            raise ValueError(f"{where}: an outline of {short} points; an outline has three or more")
        if marked.name:
            properties["name"] = marked.name
    if marked.label:
        names = marked.label.split(_DERIVED)
        named = {"name": marked.label} if len(names) == 1 else {"names": names}
        properties["classification"] = named | {"color": class_color(marked.label)}
    if marked.measurements:
        properties["measurements"] = {name: float(value) for name, value in marked.measurements.items()}
    feature = {"type": "Feature", "geometry": geometry, "properties": properties}
    try:
        return json.dumps(feature, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        raise ValueError(f"{where}: a coordinate or a measurement is not a finite number") from None


def _polygon(region: Region) -> dict[str, Any]:
    rings = [
        [_xy(point) for point in (*points, points[0])] if len(points) else [] for points in _outlines(region)
    ]
    return {"type": "Polygon", "coordinates": rings}


def _outlines(region: Region) -> list[list[list[float]]]:
    return [np.asarray(points, np.float64).tolist() for points in (region.exterior_yx, *region.holes_yx)]


def _xy(yx: Sequence[float]) -> list[float]:
    """Whole numbers without a decimal point: most are, in files of many megabytes."""
    y, x = (int(value) if float(value).is_integer() else float(value) for value in yx)
    return [x, y]


def read_geojson(path: str | Path) -> _Found:
    """The areas and points of a GeoJSON file as QuPath writes it, in the order of the file.

    A collection of features, a bare list of them, or one feature, each with what hangs below it as `childObjects`. A
    MultiPolygon gives one region for each of its polygons, a MultiPoint one point for each of its places, all with the
    same class and measurements. Classes that QuPath derives from others keep its way of writing, "Tumor: Positive".
    Measurements that are no finite number are left out. Lines, collections of geometries and other shapes enclose
    nothing: they are left out, and a line is logged that says how many.

    Raises:
        ValueError: the file is missing, is not JSON or not GeoJSON, a feature has no geometry, or one with fewer than
            three points in an outline, a coordinate that is not a finite number, or another nesting than its type
            asks for; names file and feature.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error}); export it again") from None
    regions: list[Region] = []
    points: list[Point] = []
    left_out: dict[str, int] = {}
    for where, feature in _features(path, content):
        kind, geometry, about = _parts(where, feature)
        coordinates = geometry.get("coordinates")
        if kind == "Polygon":
            regions.append(_region(where, coordinates, about))
        elif kind == "MultiPolygon":
            regions += [_region(where, one, about) for one in _list(where, coordinates, "polygons")]
        elif kind == "Point":
            points.append(_point(where, coordinates, about))
        elif kind == "MultiPoint":
            points += [_point(where, one, about) for one in _list(where, coordinates, "points")]
        else:
            left_out[kind] = left_out.get(kind, 0) + 1
    for kind, num in left_out.items():
        _LOG.warning("%s: %d of type %s left out: neither an area nor a point", path, num, kind)
    return regions, points


def _features(path: Path, content: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every feature and where it stands, children after their parent."""
    if isinstance(content, dict) and content.get("type") == "Feature":
        content = [content]
    elif isinstance(content, dict):
        content = content.get("features")
    if not isinstance(content, list):
        raise ValueError(
            f"{path}: not GeoJSON; expected a FeatureCollection, a list of features, or one feature"
        )
    waiting = [(f"{path}, feature {number}", one) for number, one in enumerate(content, start=1)][::-1]
    while waiting:
        where, feature = waiting.pop()
        if not isinstance(feature, dict) or feature.get("type") != "Feature":
            raise ValueError(f'{where}: not a feature; expected an object with "type": "Feature"')
        yield where, feature
        properties = feature.get("properties")
        if isinstance(properties, dict):
            children = properties.get("childObjects", properties.get("children", []))
            if not isinstance(children, list):
                raise ValueError(f"{where}: childObjects is not a list")
            waiting += [(f"{where}, child {number}", one) for number, one in enumerate(children, start=1)][
                ::-1
            ]


def _parts(where: str, feature: Mapping[str, Any]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Type, geometry, and label, name and measurements."""
    geometry = feature.get("geometry")
    if not isinstance(geometry, dict) or not isinstance(geometry.get("type"), str):
        raise ValueError(f"{where}: no geometry; draw it again or remove it")
    properties = feature.get("properties")
    if not isinstance(properties, dict):
        properties = {}
    return (
        geometry["type"],
        geometry,
        {
            "label": _label(where, properties.get("classification")),
            "name": str(properties.get("name") or ""),
            "measurements": _measurements(where, properties.get("measurements")),
        },
    )


def _label(where: str, classification: Any) -> str:
    if classification is None:
        return ""
    parent = ""
    if isinstance(classification, dict):
        if classification.get("parentClass"):  # QuPath 0.3 and older
            parent = _label(where, classification["parentClass"]) + _DERIVED
        names = classification.get("names")
        classification = classification.get("name") or ""
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            classification = _DERIVED.join(names)
    if not isinstance(classification, str):
        raise ValueError(f'{where}: its classification has no name; expected {{"name": "Tumor"}}')
    return parent + classification.strip()


def _measurements(where: str, given: Any) -> dict[str, float]:
    """From {name: value}, or from the older [{"name": name, "value": value}]."""
    if isinstance(given, list) and all(isinstance(one, dict) and "name" in one for one in given):
        given = {one["name"]: one.get("value") for one in given}
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ValueError(f'{where}: its measurements are no table; expected {{"name": value}}')
    return {str(name): float(value) for name, value in given.items() if _is_number(value)}


def _region(where: str, coordinates: Any, about: Mapping[str, Any]) -> Region:
    rings = [_ring(where, ring) for ring in _list(where, coordinates, "outlines")]
    if not rings:
        raise ValueError(f"{where}: a polygon without an outline; draw it again or remove it")
    return Region(rings[0], tuple(rings[1:]), **about)


def _ring(where: str, coordinates: Any) -> NDArray[np.float64]:
    places = [_place(where, one) for one in _list(where, coordinates, "coordinates [x, y]")]
    if len(places) > 1 and places[0] == places[-1]:
        places.pop()
    if len(places) < 3:
        raise ValueError(f"{where}: an outline of {len(places)} points; an outline has three or more")
    return np.array(places, np.float64)


def _point(where: str, coordinates: Any, about: Mapping[str, Any]) -> Point:
    return Point(_place(where, coordinates), about["label"], about["measurements"])


def _place(where: str, coordinates: Any) -> tuple[float, float]:
    if not isinstance(coordinates, list) or len(coordinates) < 2 or not all(map(_is_number, coordinates[:2])):
        raise ValueError(
            f"{where}: {str(coordinates)[:40]} where a coordinate [x, y] of finite numbers should be"
        )
    return float(coordinates[1]), float(coordinates[0])


def _list(where: str, given: Any, what: str) -> list[Any]:
    if not isinstance(given, list):
        raise ValueError(f"{where}: {str(given)[:40]} where a list of {what} should be")
    return given


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
