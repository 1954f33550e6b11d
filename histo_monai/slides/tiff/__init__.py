"""Tiled TIFF as the slide reader needs it: tables, and whether what lies where a tile should lie is one."""

from histo_monai.slides.tiff.leica import is_leica, why_not_leica
from histo_monai.slides.tiff.tables import (
    ADOBE_DEFLATE,
    DEFLATE,
    JPEG,
    JPEG2000,
    LZW,
    MAX_SIDE_PX,
    UNCOMPRESSED,
    Page,
    is_tiff,
    read_pages,
)
from histo_monai.slides.tiff.tiles import TileGuard

__all__ = [
    "ADOBE_DEFLATE",
    "DEFLATE",
    "JPEG",
    "JPEG2000",
    "LZW",
    "MAX_SIDE_PX",
    "UNCOMPRESSED",
    "Page",
    "TileGuard",
    "is_leica",
    "is_tiff",
    "read_pages",
    "why_not_leica",
]
