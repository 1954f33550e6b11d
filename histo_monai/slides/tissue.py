"""Tissue mask of a low-resolution slide."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.utils.errors import InputError

_PURE_WHITE = 254
_DARK = 50
_BRIGHT = 190
_FAINTEST, _STRONGEST = 0.05, 0.10
_GRAY = 0.04
_PINK = 8
_INK_SATURATION = 0.3
_INK_MARGIN = 0.06
_SPECK = 1e-4
_DENSE, _LEAST_DENSE = 0.85, 0.002
_LEAST_HE = 0.5
_GREEN_MARGIN = 0.02
_PALEST, _DENSEST = 0.06, 0.12
_MARKER_SATURATION = 0.65
_EDGE_PX = 5


def tissue_mask(rgb: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Mask of stained tissue: Otsu's threshold on saturation (Otsu 1979), with guards.

    * Saturation is relative to the slide's own background, so yellowed or bluish glass is not tissue.
    * Pure white (stitched-in areas without an image) and black (borders, marker) are never tissue and do not affect
      the threshold.
    * Bounds on the threshold leave a blank slide empty and a field full of tissue with its pale parts.
    * Green and blue marker is not tissue, because stained tissue is redder than green. Red marker looks like blood.
    * Hematoxylin and eosin absorb green most. If less than half of all dense color absorbs green most, the stain is
      another (silver, immunohistochemistry, blue counterstain). Then gray and blue are tissue, except strong blue and
      green (marker), edges, and scratches narrower than five pixels. On an empty slide, broad shadows pass as silver.
    * Specks and pinholes below one ten-thousandth of the picture are removed and filled.

    Args:
        rgb: Thumbnail, shape (h, w, 3), uint8; best at 4 to 16 µm per pixel.

    Returns:
        Shape (h, w), bool.

    Raises:
        InputError: The picture is not of shape (h, w, 3) and dtype uint8.
    """
    if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8:
        raise InputError(
            f"tissue_mask: got {rgb.shape} {rgb.dtype}. Fix: pass an RGB picture (h, w, 3) uint8."
        )
    has_image = shows_image(rgb)
    if not has_image.any():
        return np.zeros(rgb.shape[:2], bool)
    balanced, glass = relative_to_glass(rgb, has_image)
    red, green, blue = np.moveaxis(balanced, 2, 0)
    brightest = np.maximum(np.maximum(red, green), blue)
    darkest = np.minimum(np.minimum(red, green), blue)
    saturation = 1 - darkest / np.maximum(brightest, 1e-3)
    is_gray = brightest - darkest < _GRAY  # The noise of dark gray is saturated, but hardly colored.
    threshold = np.clip(_otsu(saturation[has_image]), _FAINTEST, _STRONGEST)
    is_ink = (saturation > _INK_SATURATION) & (green > red + _INK_MARGIN)
    is_stained = (saturation > threshold) & ~is_gray & ~is_ink
    is_dense = has_image & (darkest < _DENSE)
    is_colored = is_dense & ~is_gray & ~is_ink
    absorbs_green = green < np.minimum(red, blue) - _GREEN_MARGIN
    is_he = is_colored.any() and (is_colored & absorbs_green).sum() >= _LEAST_HE * is_colored.sum()
    has_glass = glass.min() < 255 or (rgb.min(axis=2) >= _PURE_WHITE).mean() > _LEAST_DENSE
    if not is_he and is_dense.mean() > _LEAST_DENSE and has_glass:
        is_stained = _of_any_stain(balanced, has_image)
    return _clean(is_stained & has_image) & has_image


def shows_image(rgb: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Mask of pixels that are neither pure white (stitched in) nor black (borders)."""
    return (rgb.min(axis=2) < _PURE_WHITE) & (rgb.max(axis=2) > _DARK)


def relative_to_glass(
    rgb: NDArray[np.uint8], has_image: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Transmitted fraction of each color, smoothed, shape (h, w, 3), 0..1; and the color of the glass, shape (3,)."""
    # Smooth first: JPEG colors single pixels of the glass.
    smooth = np.asarray(cv2.GaussianBlur(rgb, (0, 0), 1.0), np.uint8)
    glass = _background(smooth, has_image)
    return np.minimum(smooth.astype(np.float32) / glass, 1.0), glass


def _of_any_stain(balanced: NDArray[np.float32], has_image: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of pixels that absorb any color, relative to the glass."""
    brightest, darkest = balanced.max(axis=2), balanced.min(axis=2)
    absorbed = 1 - darkest
    threshold = np.clip(_otsu(absorbed[has_image]), _PALEST, _DENSEST)
    is_marker = (brightest - darkest > _MARKER_SATURATION * brightest) & (balanced[..., 0] <= darkest)
    square = np.ones((_EDGE_PX, _EDGE_PX), np.uint8)
    is_marker = cv2.dilate(is_marker.astype(np.uint8), square, iterations=2) > 0
    is_dense = (absorbed > threshold) & has_image & ~is_marker
    return cv2.morphologyEx(is_dense.astype(np.uint8), cv2.MORPH_OPEN, square) > 0


def _background(rgb: NDArray[np.uint8], has_image: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Color of the empty glass: median of the brightest fifth of possible glass; white if there is too little."""
    red, green, blue = np.moveaxis(rgb.astype(np.int16), 2, 0)
    is_pink = np.minimum(red, blue) - green > _PINK  # Glass is yellowed or bluish; pale tissue is pink.
    bright = rgb[has_image & (rgb.min(axis=2) > _BRIGHT) & ~is_pink]
    if len(bright) < max(16, 0.005 * has_image.sum()):
        return np.full(3, 255, np.float32)
    gray = bright.mean(axis=1)
    glass = bright[gray >= np.percentile(gray, 80)]
    return np.median(glass, axis=0).astype(np.float32)


def _otsu(values: NDArray[np.float32]) -> float:
    levels = np.clip(values * 255, 0, 255).astype(np.uint8).reshape(1, -1)
    return cv2.threshold(levels, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)[0] / 255


def _clean(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    smallest = max(4, round(mask.size * _SPECK))
    for keep in (True, False):  # Specks of tissue first, then pinholes in it.
        _, labels, stats, _ = cv2.connectedComponentsWithStats(
            (mask == keep).astype(np.uint8), connectivity=8
        )
        small = stats[:, cv2.CC_STAT_AREA] < smallest
        small[0] = False  # Label 0 is the other side.
        mask = np.where(small[labels], not keep, mask)
    return mask
