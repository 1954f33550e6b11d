"""The arrays in which OpenCV changes one patch."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.float32]


@dataclass
class Buffers:
    """Used for patch after patch: what OpenCV is given to write to, it writes to.

    Attributes:
        pixels: The patch as it stands, shape (P, P, 3), 0..1.
        spare: For results that cannot be written in place; `swap` makes them the patch.
        warped: The patch after the warp, 0..255, with an idle fourth channel, shape (P, P, 4).
        planes: One array (P, P) per channel.
    """

    pixels: Pixels
    spare: Pixels
    warped: Pixels
    planes: tuple[Pixels, ...]

    @classmethod
    def of(cls, size_px: int) -> "Buffers":
        """For views of `size_px`."""
        pixels, spare = np.empty((2, size_px, size_px, 3), np.float32)
        warped = np.empty((size_px, size_px, 4), np.float32)
        return cls(pixels, spare, warped, tuple(np.empty((3, size_px, size_px), np.float32)))

    def swap(self) -> None:
        """Makes what was written to `spare` the patch."""
        self.pixels, self.spare = self.spare, self.pixels


def clip(pixels: Pixels) -> None:
    """To 0..1, in place."""
    # Two thresholds take two thirds of the time of np.clip.
    clip_at_one(pixels)
    cv2.threshold(pixels, 0, 1, cv2.THRESH_TOZERO, dst=pixels)


def clip_at_one(pixels: Pixels) -> None:
    """To at most 1, in place."""
    cv2.threshold(pixels, 1, 1, cv2.THRESH_TRUNC, dst=pixels)
