"""Command `convert`: ASAP annotations (.xml) -> QuPath GeoJSON, and back."""

from __future__ import annotations

import logging
from pathlib import Path

from histo_monai.slides import NoResolutionError, open_slide
from histo_monai.slides.annotations import ORIGINS, Frame, read_annotations, write_annotations
from histo_monai.utils import storage
from histo_monai.utils.errors import InputError

_LOG = logging.getLogger(__name__)

_ANY_MPP = 1.0
"""µm/px of a slide without a resolution; the bounds do not depend on it."""


def run(source: str, target: str, slide: str | None = None, origin: str | None = None) -> None:
    """Convert the regions and points of an annotation file; the suffixes set the formats.

    QuPath's origin is the corner of the slide's bounds, ASAP's is the corner of its canvas; `slide` states both.
    Without a slide coordinates do not change, which is correct for slides without bounds.

    Args:
        origin: a key of `slides.annotations.ORIGINS`, if `source` does not use the origin of its program.

    Raises:
        InputError: a file does not match its suffix, or the other format cannot hold it.
        OutputError: the target exists or cannot be written.
        SlideError: the slide cannot be opened.
    """
    if origin is not None and slide is None:
        raise InputError(f"--origin {origin}: the slide is missing. Fix: give --slide")
    if origin is not None and origin not in ORIGINS:
        raise InputError(f"--origin: {origin!r} is unknown. Fix: give {' or '.join(ORIGINS)}")
    into = Path(target)
    storage.check_folder(into.parent)
    storage.check_outputs([into], [Path(source), *([Path(slide)] if slide else [])], written={})
    bounds_yx = None if slide is None else _bounds_corner(Path(slide))
    regions, points = read_annotations(Path(source), frame=Frame(bounds_yx, origin or ""))
    write_annotations(into, regions, points, bounds_yx)
    if bounds_yx is None:
        _LOG.warning(
            "convert: file=%s converted without a slide, which is right only for slides without bounds. MIRAX, Leica "
            "SCN and Ventana need --slide: QuPath counts from the bounds, ASAP from the canvas",
            into,
        )
    _LOG.info("convert: file=%s regions=%d points=%d", into, len(regions), len(points))


def _bounds_corner(path: Path) -> tuple[int, int]:
    try:
        with open_slide(path) as slide:
            return slide.bounds_yx
    except NoResolutionError:
        with open_slide(path, _ANY_MPP) as slide:
            return slide.bounds_yx
