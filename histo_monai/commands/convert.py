"""Command `convert`: annotations of ASAP (.xml) -> GeoJSON of QuPath (.geojson), and back."""

from __future__ import annotations

import logging
from pathlib import Path

from histo_monai import storage
from histo_monai.slides.annotations import read_annotations, write_annotations

_LOG = logging.getLogger(__name__)


def run(source: str, target: str) -> None:
    """Write the regions and points of one file as another; the suffixes say the formats.

    Raises:
        InputError: a file is not what its suffix says, or cannot be written in the other format.
        OutputError: the target exists, or cannot be written there.
    """
    into = Path(target)
    storage.check_folder(into.parent)
    storage.check_outputs([into], [Path(source)], written={})
    regions, points = read_annotations(Path(source))
    write_annotations(into, regions, points)
    _LOG.info("%s written: %d regions, %d points", into, len(regions), len(points))
