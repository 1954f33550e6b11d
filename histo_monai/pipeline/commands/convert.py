"""Command `convert`: annotations of ASAP (.xml) -> GeoJSON of QuPath (.geojson), and back."""

from __future__ import annotations

import logging
from pathlib import Path

from histo_monai.slides import NoResolutionError, open_slide
from histo_monai.slides.annotations import ORIGINS, Frame, read_annotations, write_annotations
from histo_monai.utils import storage
from histo_monai.utils.errors import InputError

_LOG = logging.getLogger(__name__)

_ANY_MPP = 1.0
"""µm/px for a slide without a resolution: the corner of its bounds does not depend on it."""


def run(source: str, target: str, slide: str | None = None, origin: str | None = None) -> None:
    """Write the regions and points of one file as another; the suffixes say the formats.

    QuPath's coordinates count from the corner of the slide's bounds, ASAP's from the corner of its canvas. `slide`
    states both corners. Without a slide coordinates do not change, which is right for slides without bounds.

    Args:
        target: the file to write.
        slide: the slide of both files, if you have it.
        origin: the origin of `source`, if it differs from its program's; see `slides.annotations.ORIGINS`.

    Raises:
        InputError: a file is not what its suffix says, or cannot be written in the other format.
        OutputError: the target exists, or cannot be written there.
        SlideError: the slide cannot be opened.
    """
    if origin is not None and slide is None:
        raise InputError(f"--origin {origin}: needs the slide. Fix: give --slide")
    if origin is not None and origin not in ORIGINS:
        raise InputError(f"--origin is {origin!r}. Fix: give {' or '.join(ORIGINS)}")
    into = Path(target)
    storage.check_folder(into.parent)
    storage.check_outputs([into], [Path(source), *([Path(slide)] if slide else [])], written={})
    bounds_yx = None if slide is None else _bounds_corner(Path(slide))
    regions, points = read_annotations(Path(source), frame=Frame(bounds_yx, origin or ""))
    write_annotations(into, regions, points, bounds_yx)
    if bounds_yx is None:
        _LOG.warning(
            "%s: written without the slide, which is right where it has no bounds; for MIRAX, Leica SCN and Ventana "
            "give --slide: QuPath counts from the corner of the bounds, ASAP from that of the canvas",
            into,
        )
    _LOG.info("%s written: %d regions, %d points", into, len(regions), len(points))


def _bounds_corner(path: Path) -> tuple[int, int]:
    try:
        with open_slide(path) as slide:
            return slide.bounds_yx
    except NoResolutionError:
        with open_slide(path, _ANY_MPP) as slide:
            return slide.bounds_yx
