"""Outlines of a slide, whichever tool drew them."""

from __future__ import annotations

from pathlib import Path

from histo_monai.datasets.files import read_bytes
from histo_monai.slides.annotations import Region, asap_regions, parse_asap_xml, read_geojson


def read_regions(path: Path) -> list[Region]:
    """The regions of an annotation file: ASAP's XML (in a zip too) or QuPath's GeoJSON, by the suffix.

    Raises:
        ValueError: the suffix is another, or the file is not what it says; names it.
    """
    if path.suffix.lower() == ".xml":
        return asap_regions(parse_asap_xml(read_bytes(path), path))
    if path.suffix.lower() == ".geojson":
        return read_geojson(path)[0]
    raise ValueError(f"{path}: outlines are read from .xml (ASAP) and .geojson (QuPath)")
