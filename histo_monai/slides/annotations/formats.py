"""Read and write annotation files, with the format chosen by suffix."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from histo_monai.slides.annotations.areas import Report, log_left_out
from histo_monai.slides.annotations.asap import asap_regions, read_asap_xml, write_asap_xml
from histo_monai.slides.annotations.frames import CANVAS, WHOLE, Corner, Frame, moved
from histo_monai.slides.annotations.geojson import read_geojson
from histo_monai.slides.annotations.geojson_writer import write_geojson
from histo_monai.slides.annotations.regions import Point, Region
from histo_monai.utils.errors import InputError

GEOJSON, ASAP_XML = ".geojson", ".xml"


def read_annotations(
    path: str | Path, report: Report = log_left_out, frame: Frame = WHOLE
) -> tuple[list[Region], list[Point]]:
    """The regions and points of a `.geojson` (`read_geojson`) or `.xml` (`read_asap_xml`, `asap_regions`).

    Args:
        report: Receives the skipped parts; default: the log.

    Raises:
        InputError: Unknown suffix, or an error of the format's reader.
    """
    path = Path(path)
    if _format(path) == GEOJSON:
        return read_geojson(path, report, frame)
    annotations = read_asap_xml(path, report)
    return moved(asap_regions(annotations), annotations.points, frame.corner(path, CANVAS))


def write_annotations(
    path: Path,
    regions: Iterable[Region],
    points: Iterable[Point] = (),
    bounds_yx: Corner | None = (0, 0),
) -> None:
    """Write a `.geojson` (`write_geojson`) or `.xml` (`write_asap_xml`), which counts from the corner of the canvas.

    Raises:
        InputError: Unknown suffix, or an error of the format's writer.
    """
    if _format(path) == GEOJSON:
        write_geojson(path, regions, points, bounds_yx)
    else:
        write_asap_xml(path, regions, points)


def _format(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (GEOJSON, ASAP_XML):
        raise InputError(f"{path}: unknown suffix. Fix: use {GEOJSON} (QuPath) or {ASAP_XML} (ASAP).")
    return suffix
