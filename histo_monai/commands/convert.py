"""Command `convert`: annotations of ASAP (.xml) -> GeoJSON of QuPath (.geojson), and back."""

from __future__ import annotations

import logging
from pathlib import Path

from histo_monai.slides.annotations import read_annotations, write_annotations

_LOG = logging.getLogger(__name__)


def run(source: str, target: str) -> None:
    """Write the regions and points of one file as another; the suffixes say the formats.

    Raises:
        ValueError: the target exists, or a file is not what its suffix says, or cannot be written in the other format.
    """
    into = Path(target)
    if into.exists():
        raise ValueError(f"{into}: exists already; name another file, or remove it")
    regions, points = read_annotations(Path(source))
    write_annotations(into, regions, points)
    _LOG.info("%s written: %d regions, %d points", into, len(regions), len(points))
