"""Annotations of a slide: outlines, regions with their holes, and points."""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Color = tuple[int, int, int]
"""Red, green and blue, 0..255."""

DERIVED = ": "
"""Separator in QuPath's derived class names: "Tumor: Positive"."""


@dataclass(frozen=True)
class Outline:
    """One closed outline.

    Attributes:
        group: Its group, "None" or empty without one.
        points_yx: Vertices, shape (n, 2), float64, (y, x) in level-0 pixels; the last is joined to the first.
        color: The group's color, else the outline's own; None if the file states none.
    """

    name: str
    group: str
    points_yx: NDArray[np.float64]
    color: Color | None = None


@dataclass(frozen=True)
class Region:
    """One area with its own holes.

    Attributes:
        exterior_yx: Vertices, shape (n, 2), float64, (y, x) in level-0 pixels; the last is joined to the first.
        holes_yx: Outlines of the holes, in the format of `exterior_yx`. Another region may lie in a hole.
        label: Class; empty if unclassified.
        name: Name of this region, mostly empty.
        measurements: Name -> finite number.
        color: Color of the class, chosen by the annotator; None: `class_color`.
    """

    exterior_yx: NDArray[np.float64]
    holes_yx: tuple[NDArray[np.float64], ...] = ()
    label: str = ""
    name: str = ""
    measurements: Mapping[str, float] = field(default_factory=dict)
    color: Color | None = None


@dataclass(frozen=True)
class Point:
    """One annotated point.

    Attributes:
        yx: (y, x) in continuous level-0 pixels.
        label: Class; empty if unclassified.
        measurements: Name -> finite number.
        color: Color of the class, chosen by the annotator; None: `class_color`.
    """

    yx: tuple[float, float]
    label: str = ""
    measurements: Mapping[str, float] = field(default_factory=dict)
    color: Color | None = None


def class_color(label: str) -> Color:
    """Red, green and blue of a class, 0..255: a strong color computed from the name."""
    red, green, blue = colorsys.hsv_to_rgb(zlib.crc32(label.encode()) % 360 / 360, 0.75, 0.9)
    return round(255 * red), round(255 * green), round(255 * blue)


def chosen_color(label: str, color: Color | None) -> Color | None:
    """The color, or None if it equals the class's default color."""
    return None if color == class_color(label) else color
