"""Where the coordinates of an annotation file begin: at the corner of the canvas, or of the bounds.

OpenSlide places the image of some formats (MIRAX, Leica SCN, Ventana BIF) on a larger canvas and states in
`openslide.bounds-x` and `-y` where the image begins. QuPath crops to these bounds and counts from their corner, in
what it shows, exports and imports. ASAP, CLAM and TRIDENT count from the corner of OpenSlide's canvas, and so does this
package inside. Files are converted where they are read and written, by this module alone. Without bounds both corners
are the same.
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
"""Member with the origin: `{"origin": "bounds", "bounds_xy": [700, 500]}`; other readers ignore it."""

Corner = tuple[int, int]
"""(y, x), level-0 pixels of the canvas."""


@dataclass(frozen=True)
class Frame:
    """What is known of a slide's coordinates before its annotation file is read.

    Attributes:
        bounds_yx: Corner of the slide's bounds, see `Slide.bounds_yx`; None where the slide is not known.
        origin: `BOUNDS` or `CANVAS` where somebody states what the file counts from; empty: as the file states, or as
            the program does that writes such files.
    """

    bounds_yx: Corner | None = (0, 0)
    origin: str = ""

    def corner(self, path: Path, of_program: str, content: Any = None) -> Corner:
        """The corner that a file's coordinates count from; to be added to them.

        Args:
            path: For messages.
            of_program: `BOUNDS` or `CANVAS`, as the program counts that writes such files.
            content: Of a GeoJSON file, which may state its origin.

        Raises:
            InputError: the file states an origin that is none, or another one than `origin`, or other bounds than the
                slide's.
        """
        stated, bounds_yx = _stated(path, content)
        if self.origin and stated and self.origin != stated:
            raise InputError(
                f"{path}: states that it counts from the corner of the {stated}, not of the {self.origin}. "
                "Fix: remove one of the two statements"
            )
        if (self.origin or stated or of_program) == CANVAS:
            return 0, 0
        if None not in (bounds_yx, self.bounds_yx) and bounds_yx != self.bounds_yx:
            (y, x), (own_y, own_x) = bounds_yx or (0, 0), self.bounds_yx or (0, 0)
            raise InputError(
                f"{path}: was written for a slide whose bounds begin at x {x}, y {y}; those of this slide begin at "
                f"x {own_x}, y {own_y}. Fix: give it the slide that it was written for"
            )
        return self.bounds_yx or bounds_yx or (0, 0)


WHOLE = Frame()
"""Frame of a slide without bounds."""


def statement(bounds_yx: Corner | None) -> str:
    """The member of a GeoJSON file that states its origin: the bounds, or where None, the canvas."""
    if bounds_yx is None:
        return json.dumps({MEMBER: {"origin": CANVAS}})[1:-1]
    return json.dumps({MEMBER: {"origin": BOUNDS, "bounds_xy": list(bounds_yx[::-1])}})[1:-1]


def moved(
    regions: Iterable[Region], points: Iterable[Point], by_yx: Corner
) -> tuple[list[Region], list[Point]]:
    """Regions and points, moved down and right by this many pixels; the same objects where that is none."""
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


def _stated(path: Path, content: Any) -> tuple[str, Corner | None]:
    """The origin that a GeoJSON file states, and its slide's bounds; empty and None where it states none."""
    about = content.get(MEMBER) if isinstance(content, dict) else None
    if about is None:
        return "", None
    origin = about.get("origin") if isinstance(about, dict) else None
    if origin not in ORIGINS:
        raise InputError(
            f'{path}: states the origin {short(about)}. Fix: write "{BOUNDS}" or "{CANVAS}", or remove {MEMBER!r}'
        )
    bounds_xy = about.get("bounds_xy")
    if bounds_xy is None:
        return origin, None
    if not _is_corner(bounds_xy):
        raise InputError(
            f"{path}: states bounds at {short(bounds_xy)}. Fix: write [x, y] in whole pixels, or remove {MEMBER!r}"
        )
    return origin, (int(bounds_xy[1]), int(bounds_xy[0]))


def _is_corner(given: Any) -> bool:
    """Whether something is [x, y]; numbers of GeoJSON are read as floats."""
    return (
        isinstance(given, Sequence)
        and len(given) == 2
        and all(isinstance(value, float) and value.is_integer() and abs(value) <= MOST_PX for value in given)
    )
