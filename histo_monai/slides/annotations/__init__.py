"""Slide annotations: ASAP XML and QuPath GeoJSON <-> outlines and regions <-> masks.

Coordinates are continuous level-0 pixels with the pixel-edge convention of `geometry`: the first pixel covers 0..1.
They count from the corner of the slide's canvas. `frames` converts files that count from the corner of the bounds.
"""

from histo_monai.slides.annotations.areas import LeftOut, left_out_in_words, log_left_out
from histo_monai.slides.annotations.asap import (
    Annotations,
    asap_regions,
    parse_asap_xml,
    read_asap_xml,
    write_asap_xml,
)
from histo_monai.slides.annotations.formats import read_annotations, write_annotations
from histo_monai.slides.annotations.frames import BOUNDS, CANVAS, ORIGINS, Frame
from histo_monai.slides.annotations.geojson import read_geojson
from histo_monai.slides.annotations.geojson_writer import write_geojson
from histo_monai.slides.annotations.raster import Rule, rasterize, rasterize_each, rasterize_regions
from histo_monai.slides.annotations.regions import Outline, Point, Region, class_color
from histo_monai.slides.annotations.tracing import mask_regions

__all__ = [
    "BOUNDS",
    "CANVAS",
    "ORIGINS",
    "Annotations",
    "Frame",
    "LeftOut",
    "Outline",
    "Point",
    "Region",
    "Rule",
    "asap_regions",
    "class_color",
    "left_out_in_words",
    "log_left_out",
    "mask_regions",
    "parse_asap_xml",
    "rasterize",
    "rasterize_each",
    "rasterize_regions",
    "read_annotations",
    "read_asap_xml",
    "read_geojson",
    "write_annotations",
    "write_asap_xml",
    "write_geojson",
]
