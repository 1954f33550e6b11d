"""Arrays in which OpenCV changes one patch."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.float32]


@dataclass
class Buffers:
    """Reusable output arrays of OpenCV, for one patch after another.

    Attributes:
        pixels: The current patch, shape (P, P, 3), 0..1.
        spare: Output of operations that cannot work in place; `swap` exchanges it with `pixels`.
        warped: The patch after the warp, 0..255, with an idle fourth channel, shape (P, P, 4).
        planes: One array (P, P) per channel.
    """

    pixels: Pixels
    spare: Pixels
    warped: Pixels
    planes: tuple[Pixels, ...]

    @classmethod
    def of(cls, size_px: int) -> "Buffers":
        """Buffers for views of `size_px`."""
        pixels, spare = np.empty((2, size_px, size_px, 3), np.float32)
        warped = np.empty((size_px, size_px, 4), np.float32)
        return cls(pixels, spare, warped, tuple(np.empty((3, size_px, size_px), np.float32)))

    def swap(self) -> None:
        """Exchange `pixels` and `spare`."""
        self.pixels, self.spare = self.spare, self.pixels


def clip(pixels: Pixels) -> None:
    """Clip to 0..1, in place."""
    # Two thresholds take two thirds of the time of np.clip.
    clip_at_one(pixels)
    cv2.threshold(pixels, 0, 1, cv2.THRESH_TOZERO, dst=pixels)


def clip_at_one(pixels: Pixels) -> None:
    """Clip to at most 1, in place."""
    cv2.threshold(pixels, 1, 1, cv2.THRESH_TRUNC, dst=pixels)
