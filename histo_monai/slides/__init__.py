"""Gigapixel files -> pixels: geometry, reading, tissue and sampling. NumPy, no tensors, no models."""

from histo_monai.slides.errors import SlideError
from histo_monai.slides.geometry import Box, choose_level, concentric_boxes
from histo_monai.slides.pool import SlidePool
from histo_monai.slides.reader import Slide, open_slide

__all__ = ["Box", "Slide", "SlideError", "SlidePool", "choose_level", "concentric_boxes", "open_slide"]
