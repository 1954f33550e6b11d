"""ASAP XML, the annotation format of Camelyon16 <-> outlines and regions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.annotations.areas import MOST_PX, LeftOut, Report, enclose_area, log_left_out
from histo_monai.slides.annotations.content import is_plain, read_content, short
from histo_monai.slides.annotations.overlaps import overlaps
from histo_monai.slides.annotations.regions import Color, Outline, Point, Region, chosen_color, class_color
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import whole_file

_AREAS = ("Polygon", "Rectangle", "Spline")
_POINTS = ("Dot", "PointSet")
_LEFT_OUT = ("Measurement", "None")
_ATTRIBUTES = ("Order", "Y", "X")

HOLE_GROUPS = ("_2", "Exclusion")
"""Groups of outlines that are holes, in Camelyon16 and in files of `write_asap_xml`."""

NO_GROUP = "None"
"""ASAP's name for an annotation without a group."""

_ESCAPED = dict.fromkeys(map(ord, "\t\n\r\x7f\x85\u2028\u2029"))
"""Control characters that XML 1.0 permits when escaped."""

_HOLE_COLOR = (100, 254, 46)


@dataclass(frozen=True)
class Annotations:
    """Annotations of one slide.

    Attributes:
        outlines: Outlines with an area, in file order.
        points: Dots and points of point sets, labeled with their group.
    """

    path: Path
    outlines: tuple[Outline, ...]
    points: tuple[Point, ...] = ()


def read_asap_xml(path: str | Path, report: Report = log_left_out) -> Annotations:
    """The outlines and points of an ASAP annotation file, the format of Camelyon16.

    Polygons and rectangles are outlines. Splines are the polygon of their points, as in ASAP's conversion to masks.
    Dots and point sets are points. Outlines without area, measurements and type None are skipped. The reader does not
    interpret groups. `Order` sorts the coordinates; decimals have a point or a comma.

    Args:
        report: Receives the skipped parts; default: the log.

    Raises:
        InputError: The file is unreadable, not XML, defines entities or is not ASAP's; or an annotation has an unknown
            type, a group with control characters, or a coordinate that is not a number within a billion pixels.
            The message names file and annotation.
    """
    path = Path(path)
    return parse_asap_xml(read_content(path), path, report)


def parse_asap_xml(data: bytes, path: Path, report: Report = log_left_out) -> Annotations:
    """The annotations of a file's content; `path` is for messages. Errors are those of `read_asap_xml`."""
    outlines: list[Outline] = []
    points: list[Point] = []
    root = _root(data, path)
    color_of = {
        one.get("Name", ""): _color(one.get("Color")) for one in root.findall("./AnnotationGroups/Group")
    }
    elements = root.findall("./Annotations/Annotation")
    if not elements:
        report(LeftOut(path, "file", "without annotation", (path.name,)))
    other_types: dict[str, list[str]] = {}
    for number, element in enumerate(elements):
        name = element.get("Name", "")
        kind = element.get("Type", "")
        group = element.get("PartOfGroup", NO_GROUP)
        where = f"{path}, annotation {short(name or f'number {number}')}"
        if kind in _LEFT_OUT:
            other_types.setdefault(kind, []).append(name or f"number {number}")
            continue
        if kind not in _AREAS + _POINTS:
            known = ", ".join(_AREAS + _POINTS + _LEFT_OUT)
            raise InputError(f"{where}: type {short(kind)} is unknown. Fix: use one of {known}.")
        if not is_plain(group):
            raise InputError(
                f"{where}: its group {short(group)} has control characters. Fix: rename the group."
            )
        places = _coordinates(element, where)
        color = chosen_color(_label(group), color_of.get(group) or _color(element.get("Color")))
        if kind in _POINTS:
            points += [Point((y, x), _label(group), color=color) for y, x in places.tolist()]
        else:
            outlines.append(Outline(name, group, places, color))
    for kind, names in other_types.items():
        report(LeftOut(path, "annotation", f"of type {kind}", tuple(names)))
    flat = enclose_area([one.points_yx for one in outlines])
    left_out = tuple(one.name for one, has_area in zip(outlines, flat, strict=True) if not has_area)
    if left_out:
        report(LeftOut(path, "outline", "without area", left_out))
    outlines = [one for one, has_area in zip(outlines, flat, strict=True) if has_area]
    return Annotations(path, tuple(outlines), tuple(points))


class _WithoutEntities(ElementTree.TreeBuilder):
    """Refuses a document type, where a file can define entities that grow into gigabytes or read other files."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise InputError("it has a <!DOCTYPE>, which ASAP never writes. Fix: remove it.")


def _root(data: bytes, path: Path) -> ElementTree.Element:
    try:
        root = ElementTree.fromstring(data, ElementTree.XMLParser(target=_WithoutEntities()))
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # LookupError: unknown encoding.
        why = " ".join(str(error).split())
        raise InputError(f"{path}: not XML ({why[:200]}). Fix: export or download it again.") from None
    if root.tag != "ASAP_Annotations":
        raise InputError(
            f"{path}: its root is <{short(root.tag)[1:-1]}>. Fix: export <ASAP_Annotations> from ASAP."
        )
    return root


def _label(group: str) -> str:
    return "" if group == NO_GROUP else group


def _coordinates(annotation: ElementTree.Element, where: str) -> NDArray[np.float64]:
    """Points (y, x) sorted by Order, shape (n, 2)."""
    elements = annotation.findall("./Coordinates/Coordinate")
    values = np.array([[_number(one, name) for name in _ATTRIBUTES] for one in elements]).reshape(-1, 3)
    bad = np.argwhere(~(np.abs(values) <= MOST_PX))
    if len(bad):
        row, column = bad[0]
        name = _ATTRIBUTES[column]
        raise InputError(
            f"{where}: {name} of a coordinate is {short(elements[row].get(name, ''))}. "
            "Fix: write a number of level-0 pixels within a billion."
        )
    order, firsts = np.unique(values[:, 0], return_index=True)
    if len(order) < len(values) or (order % 1).any():
        wrong = values[:, 0] % 1 != 0
        wrong[np.setdiff1d(np.arange(len(values)), firsts)] = True
        raise InputError(
            f"{where}: Order {short(elements[int(wrong.argmax())].get('Order'))} is not whole or comes twice. "
            "Fix: number the coordinates 0, 1, 2, ..."
        )
    return np.asarray(values[firsts, 1:])


def _number(coordinate: ElementTree.Element, name: str) -> float:
    """An attribute as a number, or NaN. Python's `float` alone also reads 1_0 and digits of other scripts."""
    text = coordinate.get(name, "")
    try:
        return float(text.replace(",", ".")) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def asap_regions(annotations: Annotations, hole_groups: Sequence[str] = HOLE_GROUPS) -> list[Region]:
    """The outlines as regions with holes, in file order, labeled with their group.

    ASAP subtracts each hole from all outlines, so each hole goes to every region that it overlaps. An overlap narrower
    than 1/512 of the common extent is ignored.

    Args:
        hole_groups: Groups of the outlines that are holes.

    Raises:
        InputError: All outlines are holes; the message names the file.
    """
    outer = [one for one in annotations.outlines if one.group not in hole_groups]
    holes = [one.points_yx for one in annotations.outlines if one.group in hole_groups]
    if holes and not outer:
        raise InputError(
            f"{annotations.path}: outlines holes only (group {', '.join(hole_groups)}). "
            "Fix: draw the outline around them."
        )
    holes_of: list[list[NDArray[np.float64]]] = [[] for _ in outer]
    for hole, number in overlaps(holes, [one.points_yx for one in outer]):
        holes_of[number].append(holes[hole])
    return [
        Region(one.points_yx, tuple(some), _label(one.group), one.name, color=one.color)
        for one, some in zip(outer, holes_of, strict=True)
    ]


def write_asap_xml(path: str | Path, regions: Iterable[Region], points: Iterable[Point] = ()) -> None:
    """Write regions for ASAP: the label becomes the group; holes are in the group Exclusion, as in Camelyon16.

    The write is atomic. Coordinates keep every digit. Measurements are dropped: ASAP cannot store them.

    Raises:
        InputError: Nothing to write; an outline with fewer than three points; a coordinate that is not finite; a label
            or name that XML cannot hold; a label that ASAP reserves for holes or for no group; or a region in the hole
            of another region, which ASAP would subtract from both. The message names file and region; no file is
            written.
    """
    path = Path(path)
    regions, points = list(regions), list(points)
    _check_for_asap(path, regions, points)
    elements = [("Polygon", label, name, outline) for label, name, outline in _outlines(regions)]
    elements += [("Dot", point.label, "", np.array([point.yx])) for point in points]
    colors = _colors([*regions, *points])
    lines = ['<?xml version="1.0"?>', "<ASAP_Annotations>", "\t<Annotations>"]
    for number, (kind, group, name, places) in enumerate(elements):
        lines += _annotation(kind, group, name or f"Annotation {number}", places, _written(group, colors))
    lines += ["\t</Annotations>", "\t<AnnotationGroups>"]
    for group in dict.fromkeys(group for _, group, _, _ in elements if group):
        lines += [
            f'\t\t<Group Name={quoteattr(group)} PartOfGroup="{NO_GROUP}" Color="{_written(group, colors)}">',
            "\t\t\t<Attributes />",
            "\t\t</Group>",
        ]
    lines += ["\t</AnnotationGroups>", "</ASAP_Annotations>", ""]
    with whole_file(path) as draft:
        draft.write_text("\n".join(lines), encoding="utf-8")


def _check_for_asap(path: Path, regions: Sequence[Region], points: Sequence[Point]) -> None:
    if not regions and not points:
        raise InputError(f"{path}: no region or point to write. Fix: pass at least one.")
    for number, region in enumerate(regions, start=1):
        where = f"{path}, region {number}"
        outlines = (region.exterior_yx, *region.holes_yx)
        if not all(np.isfinite(outline).all() for outline in outlines):
            raise InputError(f"{where}: a coordinate is not a finite number. Fix: draw the region again.")
        if min(map(len, outlines)) < 3:
            raise InputError(f"{where}: an outline of fewer than three points. Fix: draw the region again.")
        if region.label in (*HOLE_GROUPS, NO_GROUP):
            raise InputError(
                f"{where}: its label {region.label!r} has a meaning in ASAP. Fix: give it another name."
            )
        _check_text(where, region.label, region.name)
    for number, point in enumerate(points, start=1):
        if not np.isfinite(point.yx).all():
            raise InputError(
                f"{path}, point {number}: a coordinate is not a finite number. Fix: set it again."
            )
        _check_text(f"{path}, point {number}", point.label, "")
    owners = [number for number, region in enumerate(regions) for _ in region.holes_yx]
    holes = [hole for region in regions for hole in region.holes_yx]
    for hole, number in overlaps(holes, [region.exterior_yx for region in regions]):
        if owners[hole] != number:
            raise InputError(
                f"{path}, region {number + 1}: it lies in a hole of region {owners[hole] + 1}, and ASAP subtracts "
                "holes from all outlines. Fix: write GeoJSON, where a hole belongs to one region."
            )


def _check_text(where: str, label: str, name: str) -> None:
    if not is_plain(label):
        raise InputError(
            f"{where}: its label {short(label)} has control characters. Fix: give it another name."
        )
    if not is_plain(name.translate(_ESCAPED)):
        raise InputError(
            f"{where}: its name {short(name)} has control characters that XML cannot hold. "
            "Fix: rename it, or write GeoJSON."
        )


def _outlines(regions: Iterable[Region]) -> Iterator[tuple[str, str, NDArray[np.float64]]]:
    """Group, name and points of every exterior, followed by its holes."""
    for region in regions:
        yield region.label, region.name, region.exterior_yx
        for hole in region.holes_yx:
            yield HOLE_GROUPS[-1], "", hole


def _annotation(kind: str, group: str, name: str, places_yx: NDArray[np.float64], color: str) -> list[str]:
    of = f'PartOfGroup={quoteattr(group or NO_GROUP)} Color="{color}"'
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


def _colors(marked: Iterable[Region | Point]) -> dict[str, Color]:
    """Class -> its first color: an ASAP group has one color."""
    colors: dict[str, Color] = {}
    for one in marked:
        if one.color is not None:
            colors.setdefault(one.label, one.color)
    return colors


def _written(group: str, colors: Mapping[str, Color]) -> str:
    color = _HOLE_COLOR if group in HOLE_GROUPS else colors.get(group) or class_color(group)
    return "#{:02x}{:02x}{:02x}".format(*color)


def _color(text: str | None) -> Color | None:
    """The color of a text "#rrggbb"; None for other texts."""
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", text or ""):
        return None
    red, green, blue = bytes.fromhex(str(text)[1:])
    return red, green, blue
