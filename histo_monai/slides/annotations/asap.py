"""ASAP XML, the annotations of Camelyon16 <-> outlines and regions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.annotations.raster import rasterize
from histo_monai.slides.annotations.regions import Outline, Point, Region, class_color
from histo_monai.storage import whole_file

_AREAS = ("Polygon", "Rectangle", "Spline")
_POINTS = ("Dot", "PointSet")
_LEFT_OUT = ("Measurement",)

HOLE_GROUPS = ("_2", "Exclusion")
"""Groups of Camelyon16's annotations, and of `write_asap_xml`, that hold holes."""

NO_GROUP = "None"
"""ASAP's word for an annotation without a group."""

_HOLE_COLOR = (100, 254, 46)
_OVERLAP_PX = 512


@dataclass(frozen=True)
class Annotations:
    """What was drawn on one slide.

    Attributes:
        path: The file.
        outlines: At least one, in the order of the file.
        points: Dots and the points of point sets, labeled with their group; empty where they have none.
    """

    path: Path
    outlines: tuple[Outline, ...]
    points: tuple[Point, ...] = ()


def read_asap_xml(path: str | Path) -> Annotations:
    """The outlines of an annotation file of ASAP, the format of Camelyon16.

    Polygons and rectangles are outlines, and splines are the polygon of their points, as ASAP's own conversion to masks
    takes them. Dots and point sets are points; measurements are left out. Groups are read, not judged: what
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
    outlines: list[Outline] = []
    points: list[Point] = []
    for number, element in enumerate(root.findall("./Annotations/Annotation")):
        name = element.get("Name", "")
        kind = element.get("Type", "")
        where = f"{path}, annotation {name or f'number {number}'!r}"
        group = element.get("PartOfGroup", "")
        if kind in _LEFT_OUT:
            continue
        if kind not in _AREAS + _POINTS:
            raise ValueError(
                f"{where}: type {kind!r} is unknown; known: {', '.join(_AREAS + _POINTS + _LEFT_OUT)}"
            )
        places = _coordinates(element, where)
        if kind in _POINTS:
            points += [Point(place, _label(group)) for place in places]
        elif len(places) < 3:
            raise ValueError(
                f"{where}: {len(places)} points; an outline has three or more: mend or remove it"
            )
        else:
            outlines.append(Outline(name, group, np.array(places, np.float64)))
    if not outlines:
        raise ValueError(f"{path}: holds no outline; expected annotations of type {', '.join(_AREAS)}")
    return Annotations(path, tuple(outlines), tuple(points))


def _label(group: str) -> str:
    return "" if group == NO_GROUP else group


def _coordinates(annotation: ElementTree.Element, where: str) -> list[tuple[float, float]]:
    """(y, x), in the order that Order gives."""
    found: dict[int, tuple[float, float]] = {}
    for coordinate in annotation.findall("./Coordinates/Coordinate"):
        order = _number(coordinate, "Order", where)
        if order != int(order) or int(order) in found:
            raise ValueError(
                f"{where}: Order {coordinate.get('Order')!r} is not whole or comes twice; expected 0, 1, 2, ..."
            )
        found[int(order)] = _number(coordinate, "Y", where), _number(coordinate, "X", where)
    return [found[order] for order in sorted(found)]


def _number(coordinate: ElementTree.Element, name: str, where: str) -> float:
    text = coordinate.get(name, "")
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{where}: {name} of a coordinate is {text!r}; expected a number of level-0 pixels")
    return value


def asap_regions(annotations: Annotations, hole_groups: Sequence[str] = HOLE_GROUPS) -> list[Region]:
    """Outlines that are no holes, as regions in the order of the file, labeled with their group.

    ASAP does not say whose a hole is: it takes holes from all outlines, so each hole goes to every region that it
    overlaps, and what is inside stays the same. An overlap narrower than 1/512 of the common extent of the two is none.

    Args:
        annotations: See `read_asap_xml`.
        hole_groups: Groups of the outlines that are holes.
    """
    drawn = [one for one in annotations.outlines if one.group not in hole_groups]
    holes = [one.points_yx for one in annotations.outlines if one.group in hole_groups]
    holes_of: list[list[NDArray[np.float64]]] = [[] for _ in drawn]
    for number, hole in _overlaps([one.points_yx for one in drawn], holes):
        holes_of[number].append(holes[hole])
    return [
        Region(one.points_yx, tuple(some), _label(one.group), one.name)
        for one, some in zip(drawn, holes_of, strict=True)
    ]


def _overlaps(
    exteriors: Sequence[NDArray[np.float64]], holes: Sequence[NDArray[np.float64]]
) -> Iterator[tuple[int, int]]:
    """Numbers of an exterior and a hole that have some area in common, holes one after the other."""
    lows = np.array([outline.min(axis=0) for outline in exteriors])
    highs = np.array([outline.max(axis=0) for outline in exteriors])
    for number, hole in enumerate(holes):
        near = ((lows < hole.max(axis=0)) & (highs > hole.min(axis=0))).all(axis=1)
        for exterior in np.flatnonzero(near).tolist():
            if _overlap(hole, exteriors[exterior]):
                yield exterior, number


def _overlap(one_yx: NDArray[np.float64], other_yx: NDArray[np.float64]) -> bool:
    low = np.maximum(one_yx.min(axis=0), other_yx.min(axis=0))
    high = np.minimum(one_yx.max(axis=0), other_yx.max(axis=0))
    if (high <= low).any():
        return False
    shape = (_OVERLAP_PX, _OVERLAP_PX)
    one, other = (
        rasterize([Outline("", "", (points - low) / (high - low) * shape)], downsample=1, shape=shape)
        for points in (one_yx, other_yx)
    )
    return bool((one & other).any())


def write_asap_xml(path: str | Path, regions: Iterable[Region], points: Iterable[Point] = ()) -> None:
    """Write regions for ASAP: the label is the group, holes are in the group Exclusion, as in Camelyon16.

    The file appears whole or not at all. Coordinates keep every digit, with a decimal point. Measurements are not
    written: ASAP has no place for them.

    Raises:
        ValueError: there is no region; one has fewer than three points in an outline, a coordinate that is not a finite
            number, a label that is ASAP's word for holes or for no group, or lies in the hole of another, which ASAP
            would take from it too; names file and region. Nothing is written.
    """
    path = Path(path)
    regions, points = list(regions), list(points)
    _check_for_asap(path, regions)
    drawn = [("Polygon", label, name, outline) for label, name, outline in _outlines(regions)]
    drawn += [("Dot", point.label, "", np.array([point.yx])) for point in points]
    lines = ['<?xml version="1.0"?>', "<ASAP_Annotations>", "\t<Annotations>"]
    for number, (kind, group, name, places) in enumerate(drawn):
        lines += _annotation(kind, group, name or f"Annotation {number}", places)
    lines += ["\t</Annotations>", "\t<AnnotationGroups>"]
    for group in dict.fromkeys(group for _, group, _, _ in drawn if group):
        lines += [
            f'\t\t<Group Name={quoteattr(group)} PartOfGroup="{NO_GROUP}" Color="{_color(group)}">',
            "\t\t\t<Attributes />",
            "\t\t</Group>",
        ]
    lines += ["\t</AnnotationGroups>", "</ASAP_Annotations>", ""]
    with whole_file(path) as draft:
        draft.write_text("\n".join(lines), encoding="utf-8")


def _check_for_asap(path: Path, regions: Sequence[Region]) -> None:
    if not regions:
        raise ValueError(f"{path}: no region to write; ASAP's annotations hold at least one outline")
    for number, region in enumerate(regions, start=1):
        where = f"{path}, region {number}"
        outlines = (region.exterior_yx, *region.holes_yx)
        if not all(np.isfinite(outline).all() for outline in outlines):
            raise ValueError(f"{where}: a coordinate is not a finite number")
        if min(map(len, outlines)) < 3:
            raise ValueError(f"{where}: an outline of fewer than three points")
        if region.label in (*HOLE_GROUPS, NO_GROUP):
            raise ValueError(
                f"{where}: its label {region.label!r} has a meaning in ASAP; give it another name"
            )
    owners = [number for number, region in enumerate(regions) for _ in region.holes_yx]
    holes = [hole for region in regions for hole in region.holes_yx]
    for number, hole in _overlaps([region.exterior_yx for region in regions], holes):
        if owners[hole] != number:
            raise ValueError(
                f"{path}, region {number + 1}: it lies in a hole of region {owners[hole] + 1}, and ASAP takes holes "
                "from all outlines; write GeoJSON, where a hole belongs to one region"
            )


def _outlines(regions: Iterable[Region]) -> Iterator[tuple[str, str, NDArray[np.float64]]]:
    """Group, name and points of every exterior and, after it, of its holes."""
    for region in regions:
        yield region.label, region.name, region.exterior_yx
        for hole in region.holes_yx:
            yield HOLE_GROUPS[-1], "", hole


def _annotation(kind: str, group: str, name: str, places_yx: NDArray[np.float64]) -> list[str]:
    of = f'PartOfGroup={quoteattr(group or NO_GROUP)} Color="{_color(group)}"'
    return [
        f'\t\t<Annotation Name={quoteattr(name)} Type="{kind}" {of}>',
        "\t\t\t<Coordinates>",
        *(
            f'\t\t\t\t<Coordinate Order="{order}" X="{x!r}" Y="{y!r}" />'
            for order, (y, x) in enumerate(places_yx.astype(np.float64).tolist())
        ),
        "\t\t\t</Coordinates>",
        "\t\t</Annotation>",
    ]


def _color(group: str) -> str:
    return "#{:02x}{:02x}{:02x}".format(*(_HOLE_COLOR if group in HOLE_GROUPS else class_color(group)))
