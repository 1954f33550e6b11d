"""QuPath GeoJSON -> regions and points."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.annotations.areas import MOST_PX, LeftOut, Report, enclose_area, log_left_out
from histo_monai.slides.annotations.content import read_content, short
from histo_monai.slides.annotations.frames import BOUNDS, WHOLE, Frame, moved, stated
from histo_monai.slides.annotations.properties import read_properties
from histo_monai.slides.annotations.regions import Point, Region
from histo_monai.utils.errors import InputError

_AREAS, _POINTS, _LINES = (
    ("Polygon", "MultiPolygon"),
    ("Point", "MultiPoint"),
    ("LineString", "MultiLineString"),
)
_COLLECTION = "GeometryCollection"

_Found = tuple[list[Region], list[Point]]


def read_geojson(path: str | Path, report: Report = log_left_out, frame: Frame = WHOLE) -> _Found:
    """The regions and points of a QuPath GeoJSON file, in file order, level-0 pixels of the canvas.

    The file holds a FeatureCollection, a list of features, one feature or one geometry; `childObjects` are read too.
    A MultiPolygon gives one region per polygon, a MultiPoint one point per place, a GeometryCollection the parts of its
    geometries; all have the feature's class and measurements. Derived classes read "Tumor: Positive". Non-finite
    measurements are dropped. Lines, other shapes, outlines and holes without area, and features without geometry are
    skipped.

    Args:
        report: Receives the skipped parts; default: the log.

    Raises:
        InputError: The file is unreadable, not JSON or not GeoJSON; or a feature has a geometry without type or with
            wrong nesting, a coordinate that is not a number within a billion pixels, or a class that is not one line
            of text. The message names file and feature.
    """
    path = Path(path)
    regions: list[tuple[str, Region]] = []
    points: list[Point] = []
    left_out: dict[tuple[str, str], list[str]] = {}
    content = _content(path)
    corner = frame.corner(path, BOUNDS, content)
    features = list(_features(path, content))
    for where, feature in features:
        shapes = list(_shapes(where, feature.get("geometry")))
        about = read_properties(where, feature)
        if not shapes:
            left_out.setdefault(("feature", "without geometry"), []).append(_place_in_file(path, where))
        for kind, coordinates in shapes:
            if kind in _AREAS:
                polygons = [coordinates] if kind == "Polygon" else _list(where, coordinates, "polygons")
                regions += [(where, _region(where, one, about)) for one in polygons]
            elif kind in _POINTS:
                places = [coordinates] if kind == "Point" else _list(where, coordinates, "points")
                points += [_point(where, one, about) for one in places]
            else:
                why = f"of type {kind}" if kind in _LINES else "of unknown type"
                left_out.setdefault(("shape", why), []).append(_place_in_file(path, where))
    if not features:
        left_out["file", "without annotation"] = [path.name]
    for (kind, why), names in left_out.items():
        report(LeftOut(path, kind, why, tuple(names)))
    return moved(_with_area(path, regions, report), points, corner)


def states_origin(path: Path) -> bool:
    """Whether a GeoJSON file states the origin of its coordinates.

    Raises:
        InputError: The file is no JSON, or the statement is invalid.
    """
    return bool(stated(path, _content(path))[0])


def _content(path: Path) -> Any:
    data = read_content(path)
    try:
        # As floats, whole numbers of a thousand digits become infinite, and the range check refuses them.
        return json.loads(data.decode(json.detect_encoding(data)), parse_int=float)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({str(error)[:200]}). Fix: export it again.") from None


def _with_area(path: Path, regions: Sequence[tuple[str, Region]], report: Report) -> list[Region]:
    """Regions with an area, without their holes that have none."""
    rings = [points for _, region in regions for points in (region.exterior_yx, *region.holes_yx)]
    has_area = enclose_area(rings)
    if has_area.all():
        return [region for _, region in regions]
    with_area, left_out = [], []
    flags = iter(has_area.tolist())
    for where, region in regions:
        has_exterior = next(flags)
        holes = tuple(hole for hole in region.holes_yx if next(flags))
        left_out += [_place_in_file(path, where)] * (1 + len(region.holes_yx) - len(holes) - has_exterior)
        if has_exterior:
            with_area.append(replace(region, holes_yx=holes))
    report(LeftOut(path, "outline", "without area", tuple(left_out)))
    return with_area


def _place_in_file(path: Path, where: str) -> str:
    return where.removeprefix(f"{path}, ")


def _features(path: Path, content: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every feature and its place in the file, children after their parent."""
    if isinstance(content, dict) and content.get("type") in (*_AREAS, *_POINTS, *_LINES, _COLLECTION):
        content = {"type": "Feature", "geometry": content}
    if isinstance(content, dict) and content.get("type") == "Feature":
        content = [content]
    elif isinstance(content, dict):
        content = content.get("features")
    if not isinstance(content, list):
        raise InputError(
            f"{path}: not GeoJSON. Fix: write a FeatureCollection, a list of features, or one feature."
        )
    waiting = [(f"{path}, feature {number}", one) for number, one in enumerate(content, start=1)][::-1]
    while waiting:
        where, feature = waiting.pop()
        if not isinstance(feature, dict) or feature.get("type") != "Feature":
            raise InputError(f'{where}: not a feature. Fix: write an object with "type": "Feature".')
        yield where, feature
        properties = feature.get("properties")
        if isinstance(properties, dict):
            children = properties.get("childObjects", properties.get("children", []))
            if not isinstance(children, list):
                raise InputError(f"{where}: childObjects is not a list. Fix: export the file again.")
            waiting += [(f"{where}, child {number}", one) for number, one in enumerate(children, start=1)][
                ::-1
            ]


def _shapes(where: str, geometry: Any) -> Iterator[tuple[str, Any]]:
    """Type and coordinates of a geometry, or of each in a collection; empty geometries are skipped."""
    waiting = [geometry]
    while waiting:
        one = waiting.pop()
        if one is None:
            continue
        if not isinstance(one, dict) or not isinstance(one.get("type"), str):
            raise InputError(f"{where}: its geometry has no type. Fix: draw it again or remove it.")
        if one["type"] == _COLLECTION:
            waiting += _list(where, one.get("geometries"), "geometries")[::-1]
        elif one.get("coordinates") != []:
            yield one["type"], one.get("coordinates")


def _region(where: str, coordinates: Any, about: Mapping[str, Any]) -> Region:
    rings = [_ring(where, ring) for ring in _list(where, coordinates, "outlines")]
    if not rings:
        raise InputError(f"{where}: a polygon without an outline. Fix: draw it again or remove it.")
    return Region(rings[0], tuple(rings[1:]), **about)


def _ring(where: str, coordinates: Any) -> NDArray[np.float64]:
    places = _list(where, coordinates, "coordinates [x, y]")
    points = _points_of_pairs(places)
    if points is None:  # With a z, or with an error.
        points = np.array([_place(where, one) for one in places], np.float64).reshape(-1, 2)
    if len(points) > 1 and (points[0] == points[-1]).all():
        points = points[:-1]
    return points


def _points_of_pairs(places: list[Any]) -> NDArray[np.float64] | None:
    """Points (y, x) if all coordinates are valid [x, y], else None; five times as fast as checking each."""
    if set(map(type, places)) != {list} or set(map(len, places)) != {2}:
        return None
    values = list(chain.from_iterable(places))
    if set(map(type, values)) != {float}:
        return None
    points = np.array(values).reshape(-1, 2)[:, ::-1]
    return points.copy() if (np.abs(points) <= MOST_PX).all() else None


def _point(where: str, coordinates: Any, about: Mapping[str, Any]) -> Point:
    return Point(_place(where, coordinates), about["label"], about["measurements"], about["color"])


def _place(where: str, coordinates: Any) -> tuple[float, float]:
    if not isinstance(coordinates, list) or len(coordinates) < 2 or not all(map(_is_place, coordinates[:2])):
        raise InputError(
            f"{where}: {short(coordinates)} is no coordinate. Fix: write [x, y], numbers within a billion."
        )
    return coordinates[1], coordinates[0]


def _list(where: str, given: Any, what: str) -> list[Any]:
    if not isinstance(given, list):
        raise InputError(f"{where}: {short(given)} is not a list of {what}. Fix: write a list of {what}.")
    return given


def _is_place(value: Any) -> bool:
    return isinstance(value, float) and -MOST_PX <= value <= MOST_PX
