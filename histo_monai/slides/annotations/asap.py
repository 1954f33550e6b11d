"""ASAP XML, the annotations of Camelyon16 <-> outlines and regions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

_AREAS = ("Polygon", "Rectangle", "Spline")
_NOT_AREAS = ("Dot", "PointSet", "Measurement")


@dataclass(frozen=True)
class Outline:
    """One closed outline.

    Attributes:
        name: As the annotator's tool wrote it.
        group: The group it belongs to, "None" or empty where it belongs to none.
        points_yx: Vertices, shape (n, 2), float64, (y, x) in level-0 pixels; the last is joined to the first.
    """

    name: str
    group: str
    points_yx: NDArray[np.float64]


@dataclass(frozen=True)
class Annotations:
    """What was drawn on one slide.

    Attributes:
        path: The file.
        outlines: At least one, in the order of the file.
    """

    path: Path
    outlines: tuple[Outline, ...]


def read_asap_xml(path: str | Path) -> Annotations:
    """The outlines of an annotation file of ASAP, the format of Camelyon16.

    Polygons and rectangles are outlines, and splines are the polygon of their points, as ASAP's own conversion to masks
    takes them. Dots, point sets and measurements enclose nothing and are left out. Groups are read, not judged: what
    they mean is the dataset's business. Coordinates are taken in the order that `Order` gives; decimals may be written
    with a point or a comma.

    Raises:
        ValueError: the file is missing, is not XML or not ASAP's, holds no outline, or an annotation has an unknown
            type, fewer than three points, or a coordinate that is not a number; names file and annotation.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    return parse_asap_xml(data, path)


def parse_asap_xml(data: bytes, path: Path) -> Annotations:
    """As `read_asap_xml`, from the content of a file; `path` is what errors name."""
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise ValueError(f"{path}: not XML ({error}); export or download it again") from None
    if root.tag != "ASAP_Annotations":
        raise ValueError(f"{path}: its root is <{root.tag}>; expected <ASAP_Annotations>, as ASAP writes it")
    outlines = []
    for number, element in enumerate(root.findall("./Annotations/Annotation")):
        name = element.get("Name", "")
        kind = element.get("Type", "")
        where = f"{path}, annotation {name or f'number {number}'!r}"
        if kind in _NOT_AREAS:
            continue
        if kind not in _AREAS:
            raise ValueError(f"{where}: type {kind!r} is unknown; known: {', '.join(_AREAS + _NOT_AREAS)}")
        outlines.append(Outline(name, element.get("PartOfGroup", ""), _points(element, where)))
    if not outlines:
        raise ValueError(f"{path}: holds no outline; expected annotations of type {', '.join(_AREAS)}")
    return Annotations(path, tuple(outlines))


def _points(annotation: ElementTree.Element, where: str) -> NDArray[np.float64]:
    found: dict[int, tuple[float, float]] = {}
    for coordinate in annotation.findall("./Coordinates/Coordinate"):
        order = _number(coordinate, "Order", where)
        if order != int(order) or int(order) in found:
            raise ValueError(
                f"{where}: Order {coordinate.get('Order')!r} is not whole or comes twice; expected 0, 1, 2, ..."
            )
        found[int(order)] = _number(coordinate, "Y", where), _number(coordinate, "X", where)
    if len(found) < 3:
        raise ValueError(f"{where}: {len(found)} points; an outline has three or more: mend or remove it")
    return np.array([found[order] for order in sorted(found)], np.float64)


def _number(coordinate: ElementTree.Element, name: str, where: str) -> float:
    text = coordinate.get(name, "")
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{where}: {name} of a coordinate is {text!r}; expected a number of level-0 pixels")
    return value
