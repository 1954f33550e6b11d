"""What is marked on a slide: outlines, areas with their holes, and points."""

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
"""Between the names of a class that QuPath derives from another: "Tumor: Positive"."""


@dataclass(frozen=True)
class Outline:
    """One closed outline.

    Attributes:
        name: As the annotator's tool wrote it.
        group: The group it belongs to, "None" or empty where it belongs to none.
        points_yx: Vertices, shape (n, 2), float64, (y, x) in level-0 pixels; the last is joined to the first.
        color: Of its group, else its own; None where the file tells none.
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
        holes_yx: Outlines of what is left out of it, likewise. Another region may lie in them.
        label: Its class, empty where it is unclassified.
        name: Of this one region, mostly empty.
        measurements: Finite numbers by their name.
        color: Of its class, as the annotator chose it; None takes that of the class's name.
    """

    exterior_yx: NDArray[np.float64]
    holes_yx: tuple[NDArray[np.float64], ...] = ()
    label: str = ""
    name: str = ""
    measurements: Mapping[str, float] = field(default_factory=dict)
    color: Color | None = None


@dataclass(frozen=True)
class Point:
    """One place.

    Attributes:
        yx: (y, x) in continuous level-0 pixels.
        label: Its class, empty where it is unclassified.
        measurements: Finite numbers by their name.
        color: As of a region.
    """

    yx: tuple[float, float]
    label: str = ""
    measurements: Mapping[str, float] = field(default_factory=dict)
    color: Color | None = None


def class_color(label: str) -> Color:
    """Red, green and blue of a class, 0..255: a strong color that depends on its name only."""
    red, green, blue = colorsys.hsv_to_rgb(zlib.crc32(label.encode()) % 360 / 360, 0.75, 0.9)
    return round(255 * red), round(255 * green), round(255 * blue)


def chosen_color(label: str, color: Color | None) -> Color | None:
    """None where a color is that of the class's name: nobody has chosen it."""
    return None if color == class_color(label) else color
