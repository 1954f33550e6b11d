"""Fields of a level -> patches: cropping, sub-pixel shifts and area-weighted reduction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.coverage import mean_bands

WHITE = 255

_ALIGNED_PX = 1 / 64
"""Offsets below this are rounded to whole pixels: the change is below the 8 bits of a slide."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a level to read for one patch, and the patch's place in it.

    Attributes:
        corner_yx: First pixel to read, whole level pixels; may lie outside the level.
        region_px: Side of the square to read, level pixels.
        start_yx: Where the field begins inside the region, level pixels.
        scale: Level pixels per patch pixel.
        is_aligned: The field falls on whole pixels and needs no sub-pixel resampling.
    """

    corner_yx: tuple[int, int]
    region_px: int
    start_yx: tuple[float, float]
    scale: float
    side_px: int
    is_aligned: bool

    @property
    def reduction(self) -> int:
        """The whole number of level pixels per patch pixel nearest to the scale."""
        return max(1, round(self.scale))


def plan_window(center_yx: tuple[float, float], side_px: int, scale: float) -> Window:
    """The window of a patch around an exact center.

    Args:
        center_yx: Center in level pixels (pixel-edge convention).
        scale: Level pixels per patch pixel.
    """
    reduction = max(1, round(scale))
    is_whole = abs(scale - reduction) * side_px < _ALIGNED_PX
    if is_whole:
        scale = float(reduction)
    top_left = (center_yx[0] - side_px * scale / 2, center_yx[1] - side_px * scale / 2)
    nearest = (round(top_left[0]), round(top_left[1]))
    off = max(abs(top_left[0] - nearest[0]), abs(top_left[1] - nearest[1]))
    if is_whole and off <= _ALIGNED_PX:
        return Window(nearest, side_px * reduction, (0.0, 0.0), scale, side_px, True)
    # A fractional shift needs one more pixel; a fractional scale also reads beyond the field's first edge.
    margin = 0 if is_whole else 1
    corner = (floor(top_left[0]) - margin, floor(top_left[1]) - margin)
    start = (top_left[0] - corner[0], top_left[1] - corner[1])
    region_px = side_px * reduction + 1 if is_whole else ceil(side_px * scale) + 3
    return Window(corner, region_px, start, scale, side_px, False)


def make_patches(
    regions: Iterable[NDArray[np.uint8]], windows: Sequence[Window], patches: Sequence[NDArray[np.uint8]]
) -> None:
    """Resample regions into patches; every patch pixel is the mean over its area.

    Args:
        regions: Shape (region_px, region_px, 3) each, uint8.
        windows: Place of each field in its region; all of one size and scale.
        patches: Shape (3, side_px, side_px) each, uint8; overwritten.
    """
    kind = windows[0]
    if kind.scale == kind.reduction:
        for region, window, patch in zip(regions, windows, patches, strict=True):
            # OpenCV splits the channels ten times as fast as a transposed copy.
            cv2.split(_reduced(region, window), list(patch))
        return
    field_px, side_px, starts = kind.region_px, kind.side_px, [window.start_yx for window in windows]
    bands = mean_bands(regions, (field_px, field_px), starts, (kind.scale, kind.scale), (side_px, side_px))
    for number, rows, levels in bands:
        for channel, plane in enumerate(patches[number]):
            cv2.transpose(levels[:, channel], plane[rows])


def _reduced(region: NDArray[np.uint8], window: Window) -> NDArray[np.uint8]:
    """The patch of a window with a whole scale, (side_px, side_px, 3)."""
    side, reduction = window.side_px, window.reduction
    level_patch = region if window.is_aligned else _shift(region, window.start_yx, side * reduction)
    if reduction == 1:
        return level_patch
    return np.asarray(cv2.resize(level_patch, (side, side), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def _shift(region: NDArray[np.uint8], start_yx: tuple[float, float], side_px: int) -> NDArray[np.uint8]:
    """A square of the region, shifted by a fraction of a pixel.

    Two weighted sums replace OpenCV's warp at five times its speed. Each pixel is the exact mean over its area, apart
    from rounding to whole gray levels twice.
    """
    (top, left), (y, x) = (floor(start_yx[0]), floor(start_yx[1])), (start_yx[0] % 1, start_yx[1] % 1)
    flat = region.reshape(region.shape[0], -1)
    rows, columns = slice(top, top + side_px + (y > 0)), slice(left * 3, (left + side_px) * 3)
    mixed: NDArray[Any] = flat[rows, columns]
    if x > 0:
        mixed = cv2.addWeighted(mixed, 1 - x, flat[rows, columns.start + 3 : columns.stop + 3], x, 0.0)
    if y > 0:
        mixed = cv2.addWeighted(mixed[:-1], 1 - y, mixed[1:], y, 0.0)
    return np.ascontiguousarray(mixed).reshape(side_px, side_px, 3)


def area_resample(
    image: NDArray[np.uint8],
    start_yx: tuple[float, float],
    scale_yx: tuple[float, float],
    size_yx: tuple[int, int],
) -> NDArray[np.uint8]:
    """An image resampled by exact area coverage, at any scale and offset.

    Args:
        image: Shape (h, w, 3), uint8.
        start_yx: Where the first output pixel begins, input pixels.
        scale_yx: Input pixels per output pixel.

    Returns:
        Shape (*size_yx, 3), uint8, rounded to the nearest gray level.
    """
    out = np.empty((*size_yx, 3), np.uint8)
    for _, rows, levels in mean_bands([image], image.shape[:2], [start_yx], scale_yx, size_yx):
        out[rows] = cv2.transpose(levels.reshape(size_yx[1] * 3, -1)).reshape(-1, size_yx[1], 3)
    return out
