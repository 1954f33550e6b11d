"""Tiled TIFF for the slide reader: tables, levels, descriptions, and checked tiles."""

from histo_monai.slides.tiff.backend import LevelTiles, TiffBackend
from histo_monai.slides.tiff.decode import why_not_decoded, why_not_pillow
from histo_monai.slides.tiff.leica import is_leica, why_not_leica
from histo_monai.slides.tiff.levels import Level, find_levels
from histo_monai.slides.tiff.likeness import keep_alike
from histo_monai.slides.tiff.tables import JPEG, JPEG2000, LZW, MAX_SIDE_PX, Page, is_tiff, read_pages

__all__ = [
    "JPEG",
    "JPEG2000",
    "LZW",
    "MAX_SIDE_PX",
    "Level",
    "LevelTiles",
    "Page",
    "TiffBackend",
    "find_levels",
    "is_leica",
    "is_tiff",
    "keep_alike",
    "read_pages",
    "why_not_decoded",
    "why_not_leica",
    "why_not_pillow",
]
