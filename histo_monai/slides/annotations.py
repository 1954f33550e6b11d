"""Outlines drawn on a slide: ASAP XML -> polygons -> masks.

Coordinates are continuous level-0 pixels with the pixel-edge convention of `geometry`: ASAP draws on the slide's plane,
in which the first pixel covers 0..1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

_AREAS = ("Polygon", "Rectangle", "Spline")
_NOT_AREAS = ("Dot", "PointSet", "Measurement")

Rule = Literal["center", "whole", "touched"]


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


def rasterize(
    outlines: Iterable[Outline],
    holes: Iterable[Outline] = (),
    *,
    downsample: float,
    shape: tuple[int, int],
    corner_yx: tuple[int, int] = (0, 0),
    rule: Rule = "center",
) -> NDArray[np.bool_]:
    """The area inside any of the outlines and inside none of the holes.

    Only the window asked for is made, and only the part of it around an outline is worked on. Inside is where the
    outline winds around a point at all (non-zero winding, the rule of ASAP's conversion), so the overlap of an outline
    that crosses itself is inside. Vertices are not rounded.

    Args:
        outlines: Any number; where they overlap they count once.
        holes: Taken out of all outlines.
        downsample: Level-0 pixels per mask pixel, i.e. mask_mpp / slide_mpp.
        shape: Height and width of the window, mask pixels.
        corner_yx: Upper left corner of the window, mask pixels.
        rule: What makes a pixel True. "center": its middle is inside. "whole": no part of it is outside, so areas
            summed up over the mask are never too large. "touched": any part of it is inside, so that what is False is
            clean altogether.

    Returns:
        Shape `shape`, bool.

    Raises:
        ValueError: downsample is not positive or the window is empty.
    """
    if not downsample > 0 or min(shape) < 1:
        raise ValueError(f"downsample and shape must be positive, got {downsample} and {shape}")
    inverse: dict[Rule, Rule] = {"center": "center", "whole": "touched", "touched": "whole"}
    mask = _union(outlines, downsample, shape, corner_yx, rule)
    return mask & ~_union(holes, downsample, shape, corner_yx, inverse[rule])


def _union(
    outlines: Iterable[Outline],
    downsample: float,
    shape: tuple[int, int],
    corner_yx: tuple[int, int],
    rule: Rule,
) -> NDArray[np.bool_]:
    mask = np.zeros(shape, bool)
    for outline in outlines:
        points = outline.points_yx / downsample - corner_yx
        low = np.clip(np.floor(points.min(axis=0)).astype(np.int64), 0, shape)
        high = np.clip(np.floor(points.max(axis=0)).astype(np.int64) + 1, 0, shape)
        if (high <= low).any():
            continue
        window = mask[low[0] : high[0], low[1] : high[1]]
        starts = points - low
        ends = np.roll(starts, -1, axis=0)
        inside = _winds_around_centers(starts, ends, window.shape)
        if rule != "center":
            rows, columns = _crossed_pixels(starts, ends, window.shape)
            inside[rows, columns] = rule == "touched"
        window |= inside
    return mask


def _winds_around_centers(
    starts: NDArray[np.float64], ends: NDArray[np.float64], shape: Sequence[int]
) -> NDArray[np.bool_]:
    """Whether the polygon of these edges winds around the middle of each pixel; shape `shape`, bool."""
    height, width = shape
    # The rows whose middle an edge passes: the lower end belongs to it, the upper one to its neighbour.
    first, last = (
        np.clip(np.ceil(edge - 0.5), 0, height).astype(np.int64)
        for edge in (np.minimum(starts[:, 0], ends[:, 0]), np.maximum(starts[:, 0], ends[:, 0]))
    )
    edge, step = _spread(last - first)
    row = first[edge] + step
    rise, run = (ends - starts)[edge].T
    column = starts[edge, 1] + (row + 0.5 - starts[edge, 0]) / rise * run
    turns = np.zeros((height, width + 1), np.int32)
    # An edge counts for every pixel whose middle lies to its right.
    np.add.at(
        turns,
        (row, np.clip(np.ceil(column - 0.5), 0, width).astype(np.int64)),
        np.sign(rise).astype(np.int32),
    )
    np.cumsum(turns, axis=1, out=turns)
    return turns[:, :width] != 0


def _crossed_pixels(
    starts: NDArray[np.float64], ends: NDArray[np.float64], shape: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the pixels that an edge runs through, inside the window; some more than once."""
    delta = ends - starts
    edges, parts = [np.arange(len(starts))] * 2, [np.zeros(len(starts)), np.ones(len(starts))]
    for axis in (0, 1):  # Where an edge crosses from one row, or column, of pixels to the next.
        low = np.minimum(starts[:, axis], ends[:, axis])
        high = np.maximum(starts[:, axis], ends[:, axis])
        first, last = (np.clip(np.ceil(value), 0, shape[axis] + 1).astype(np.int64) for value in (low, high))
        edge, step = _spread(last - first)
        edges.append(edge)
        parts.append((first[edge] + step - starts[edge, axis]) / delta[edge, axis])
    edge, part = np.concatenate(edges), np.clip(np.concatenate(parts), 0, 1)
    order = np.lexsort((part, edge))
    edge, part = edge[order], part[order]
    same = edge[1:] == edge[:-1]
    middle = ((part[1:] + part[:-1]) / 2)[same]
    edge = edge[1:][same]
    pixel = np.floor(starts[edge] + middle[:, None] * delta[edge]).astype(np.int64)
    rows, columns = pixel[((pixel >= 0) & (pixel < np.array(shape))).all(axis=1)].T
    return rows, columns


def _spread(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each index as often as its count says, and which time it is: (2, 0, 1) -> (0, 0, 2), (0, 1, 0)."""
    index = np.repeat(np.arange(len(counts)), counts)
    return index, np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
