"""Coordinate origin of annotation files: the corner of the canvas, or of the bounds.

OpenSlide places the image of some formats (MIRAX, Leica SCN, Ventana BIF) on a larger canvas. Its properties
`openslide.bounds-x` and `-y` state where the image begins. QuPath crops to these bounds and counts from their corner.
ASAP, CLAM, TRIDENT and this package count from the corner of the canvas. Only this module converts, where files are
read and written. Without bounds both corners are equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from histo_monai.slides.annotations.areas import MOST_PX
from histo_monai.slides.annotations.content import short
from histo_monai.slides.annotations.regions import Point, Region
from histo_monai.utils.errors import InputError

BOUNDS, CANVAS = "bounds", "canvas"
ORIGINS = (BOUNDS, CANVAS)
MEMBER = "histo_monai"
"""GeoJSON member with the origin: `{"origin": "bounds", "bounds_xy": [700, 500]}`; other readers ignore it."""

Corner = tuple[int, int]
"""(y, x), level-0 pixels of the canvas."""


@dataclass(frozen=True)
class Frame:
    """Known origin of a slide's coordinates, before reading its annotation file.

    Attributes:
        bounds_yx: Corner of the slide's bounds (`Slide.bounds_yx`); None without a slide.
        origin: `BOUNDS` or `CANVAS` if the user states the file's origin; empty: the file's own statement, else the
            convention of the program that writes such files.
    """

    bounds_yx: Corner | None = (0, 0)
    origin: str = ""

    def corner(self, path: Path, of_program: str, content: Any = None) -> Corner:
        """The corner that a file's coordinates count from; add it to them.

        Args:
            path: For messages.
            of_program: `BOUNDS` or `CANVAS`, the convention of the program that writes such files.
            content: Parsed GeoJSON, which may state its origin.

        Raises:
            InputError: The file's origin is invalid or contradicts `origin`, or its bounds differ from the slide's.
        """
        origin, bounds_yx = stated(path, content)
        if self.origin and origin and self.origin != origin:
            raise InputError(
                f"{path}: states that it counts from the corner of the {origin}, not of the {self.origin}. "
                "Fix: remove one of the two statements."
            )
        if (self.origin or origin or of_program) == CANVAS:
            return 0, 0
        if None not in (bounds_yx, self.bounds_yx) and bounds_yx != self.bounds_yx:
            (y, x), (own_y, own_x) = bounds_yx or (0, 0), self.bounds_yx or (0, 0)
            raise InputError(
                f"{path}: was written for a slide whose bounds begin at x {x}, y {y}; those of this slide begin at "
                f"x {own_x}, y {own_y}. Fix: use the file with its own slide."
            )
        return self.bounds_yx or bounds_yx or (0, 0)


WHOLE = Frame()
"""Frame of a slide without bounds."""


def statement(bounds_yx: Corner | None) -> str:
    """The GeoJSON member that states the origin: the bounds, or the canvas for None."""
    if bounds_yx is None:
        return json.dumps({MEMBER: {"origin": CANVAS}})[1:-1]
    return json.dumps({MEMBER: {"origin": BOUNDS, "bounds_xy": list(bounds_yx[::-1])}})[1:-1]


def moved(
    regions: Iterable[Region], points: Iterable[Point], by_yx: Corner
) -> tuple[list[Region], list[Point]]:
    """Regions and points, shifted down and right by `by_yx` pixels; unchanged objects for (0, 0)."""
    if by_yx == (0, 0):
        return list(regions), list(points)
    by = np.array(by_yx, np.float64)
    return (
        [
            replace(
                one,
                exterior_yx=np.asarray(one.exterior_yx, np.float64) + by,
                holes_yx=tuple(np.asarray(hole, np.float64) + by for hole in one.holes_yx),
            )
            for one in regions
        ],
        [replace(one, yx=(one.yx[0] + by_yx[0], one.yx[1] + by_yx[1])) for one in points],
    )


def stated(path: Path, content: Any) -> tuple[str, Corner | None]:
    """The origin and bounds that a GeoJSON file states; empty and None without a statement."""
    about = content.get(MEMBER) if isinstance(content, dict) else None
    if about is None:
        return "", None
    origin = about.get("origin") if isinstance(about, dict) else None
    if origin not in ORIGINS:
        raise InputError(
            f'{path}: states the origin {short(about)}. Fix: write "{BOUNDS}" or "{CANVAS}", or remove {MEMBER!r}.'
        )
    bounds_xy = about.get("bounds_xy")
    if bounds_xy is None:
        return origin, None
    if not _is_corner(bounds_xy):
        raise InputError(
            f"{path}: states bounds at {short(bounds_xy)}. Fix: write [x, y] in whole pixels, or remove {MEMBER!r}."
        )
    return origin, (int(bounds_xy[1]), int(bounds_xy[0]))


def _is_corner(given: Any) -> bool:
    """Whether a value is [x, y] in whole pixels; GeoJSON numbers arrive as floats."""
    return (
        isinstance(given, Sequence)
        and len(given) == 2
        and all(isinstance(value, float) and value.is_integer() and abs(value) <= MOST_PX for value in given)
    )
