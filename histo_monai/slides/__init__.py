"""Slide files to pixels: geometry, reading, tissue masks and patch sampling. NumPy only."""

from histo_monai.slides.errors import NoResolutionError, SlideError
from histo_monai.slides.geometry import Box, choose_level, concentric_boxes
from histo_monai.slides.pool import MAX_OPEN, SlidePool
from histo_monai.slides.reader import Slide, open_slide
from histo_monai.slides.sampling import sample_centers, tissue_fraction
from histo_monai.slides.tissue import tissue_mask

__all__ = [
    "MAX_OPEN",
    "Box",
    "NoResolutionError",
    "Slide",
    "SlideError",
    "SlidePool",
    "choose_level",
    "concentric_boxes",
    "open_slide",
    "sample_centers",
    "tissue_fraction",
    "tissue_mask",
]
