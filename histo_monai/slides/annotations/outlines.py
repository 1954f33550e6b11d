"""Regions of a slide's annotation file, from ASAP or QuPath."""

from __future__ import annotations

from pathlib import Path

from histo_monai.slides.annotations import CANVAS, Frame, Region, asap_regions, parse_asap_xml, read_geojson
from histo_monai.slides.annotations.content import check_size, read_content
from histo_monai.slides.annotations.frames import moved
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.trees import read_bytes, split_archive, unpacked_size


def read_annotation(path: Path) -> bytes:
    """The content of an annotation file, on disk or in a zip.

    Raises:
        InputError: The file is unreadable, empty or too large; the message names it.
    """
    if split_archive(path)[0] is None:
        return read_content(path)
    check_size(path, unpacked_size(path))
    return read_bytes(path)


def read_regions(path: str | Path, frame: Frame) -> list[Region]:
    """The regions of an annotation file: ASAP's XML (in a zip too) or QuPath's GeoJSON, by the suffix.

    If some regions have a class, regions without a class are dropped as unlabeled. Outlines without area are skipped
    and logged.

    Raises:
        InputError: Unknown suffix or invalid content; the message names the file.
    """
    path = Path(path)
    if path.suffix.lower() == ".xml":
        regions = asap_regions(parse_asap_xml(read_annotation(path), path))
        regions, _ = moved(regions, (), frame.corner(path, CANVAS))
    elif path.suffix.lower() == ".geojson":
        regions = read_geojson(path, frame=frame)[0]
    else:
        raise InputError(f"{path}: unknown suffix. Fix: use .xml (ASAP) or .geojson (QuPath).")
    return [one for one in regions if one.label] or regions
