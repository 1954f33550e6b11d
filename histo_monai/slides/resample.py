"""Exact fields of a level -> patches: cropping, sub-pixel shifts and area-correct reduction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

WHITE = 255

_ALIGNED_PX = 1 / 64
"""Offsets below this are read as whole pixels: a 64th of a pixel is below what 8 bits of a slide can show."""

_BLOCK_BYTES = 4 * 2**20
"""Of a field's rows as floats, while they are reduced."""


@dataclass(frozen=True, slots=True)
class Window:
    """What to read from a level for one patch, and how to make the patch of it.

    Attributes:
        corner_yx: First pixel to read, whole level pixels; may lie outside the level.
        region_px: Side of the square to read, level pixels.
        start_yx: Where the field begins inside the region, level pixels.
        scale: Level pixels per patch pixel.
        side_px: Side of the patch.
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
        side_px: Side of the patch.
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
    # A shift by a fraction needs one more pixel; any other step also looks past the field's first edge.
    margin = 0 if is_whole else 1
    corner = (floor(top_left[0]) - margin, floor(top_left[1]) - margin)
    start = (top_left[0] - corner[0], top_left[1] - corner[1])
    region_px = side_px * reduction + 1 if is_whole else ceil(side_px * scale) + 3
    return Window(corner, region_px, start, scale, side_px, False)


def make_patches(
    regions: Iterable[NDArray[np.uint8]], windows: Sequence[Window], patches: Sequence[NDArray[np.uint8]]
) -> None:
    """Resample regions to their patches; every patch pixel is the mean over the area it covers.

    Args:
        regions: Shape (region_px, region_px, 3) each, uint8.
        windows: How each field lies in its region; of one size and scale.
        patches: Shape (3, side_px, side_px) each, uint8; written.
    """
    kind = windows[0]
    if kind.scale == kind.reduction:
        for region, window, patch in zip(regions, windows, patches, strict=True):
            # OpenCV splits the channels ten times as fast as a transposed copy.
            cv2.split(_reduced(region, window), list(patch))
        return
    together = max(1, _BLOCK_BYTES // (12 * kind.region_px**2))
    read = iter(regions)
    for first in range(0, len(windows), together):
        part = windows[first : first + together]
        _cover([next(read) for _ in part], part, patches[first : first + together])


def _cover(
    regions: Sequence[NDArray[np.uint8]], windows: Sequence[Window], patches: Sequence[NDArray[np.uint8]]
) -> None:
    """As `make_patches`, at any scale."""
    starts, kind = np.array([window.start_yx for window in windows]), windows[0]
    along_y, along_x = (
        _matrix(*_taps(starts[:, axis], kind.scale, kind.side_px, kind.region_px), kind.region_px)
        for axis in (0, 1)
    )
    for levels, patch in zip(_covered(regions, along_y, along_x), patches, strict=True):
        for channel in range(3):
            cv2.transpose(levels[:, channel], patch[channel])


def _reduced(region: NDArray[np.uint8], window: Window) -> NDArray[np.uint8]:
    """The patch of a window with a whole number of pixels to each of its own, (side_px, side_px, 3)."""
    side, reduction = window.side_px, window.reduction
    level_patch = region if window.is_aligned else _shift(region, window.start_yx, side * reduction)
    if reduction == 1:
        return level_patch
    return np.asarray(cv2.resize(level_patch, (side, side), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def _shift(region: NDArray[np.uint8], start_yx: tuple[float, float], side_px: int) -> NDArray[np.uint8]:
    """A square of the region that begins at a fraction of a pixel.

    Two weighted sums do what OpenCV's warp does, five times as fast. Each pixel is the exact mean over the
    area it covers, but for rounding to whole gray levels twice.
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


def area_weights(start: float, scale: float, num_out: int, num_in: int) -> sparse.csr_array:
    """Weights of exact area coverage along one axis.

    Output ``j`` covers ``[start + j * scale, start + (j + 1) * scale)`` of the input, whose pixel ``i``
    covers ``[i, i + 1)``; its weights are the overlaps divided by ``scale``. What lies outside the input is
    left out and the rest normalized.

    Returns:
        Sparse matrix of shape (num_out, num_in), float32, rows that sum to 1.
    """
    return _matrix(*_taps(np.array([start]), scale, num_out, num_in), num_in)


def _taps(
    starts: NDArray[np.float64], scale: float, num_out: int, num_in: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Weights and places in the input, (starts, num_out, taps) each; the last ones may be of no weight."""
    edges = np.clip(starts[:, None] + np.arange(num_out + 1) * scale, 0, num_in)
    lower, upper = edges[:, :-1, None], edges[:, 1:, None]
    index = np.floor(lower).astype(np.int32) + np.arange(int(np.ceil(scale)) + 1, dtype=np.int32)
    overlap = np.minimum(upper, index + 1) - np.maximum(lower, index)
    overlap = np.clip(overlap, 0, None)
    overlap /= np.maximum(overlap.sum(-1, keepdims=True), 1e-12)
    return overlap.astype(np.float32), np.minimum(index, num_in - 1)


def _matrix(weights: NDArray[np.float32], places: NDArray[np.int32], num_in: int) -> sparse.csr_array:
    """One matrix for several inputs that lie one after the other, a block for each; (blocks, num_out, taps)."""
    num_blocks, num_out, _ = weights.shape
    has_weight = weights > 0
    first = np.zeros(num_blocks * num_out + 1, np.int32)
    np.cumsum(np.count_nonzero(has_weight, axis=-1).ravel(), out=first[1:])
    columns = places + num_in * np.arange(num_blocks, dtype=np.int32)[:, None, None]
    shape = (num_blocks * num_out, num_blocks * num_in)
    return sparse.csr_array((weights[has_weight], columns[has_weight], first), shape=shape)


def _covered(
    fields: Sequence[NDArray[np.uint8]], along_y: sparse.csr_array, along_x: sparse.csr_array
) -> NDArray[np.uint8]:
    """Means over areas.

    Args:
        fields: Shape (h, w, 3) each, uint8.
        along_y: Weights of the rows of all fields, see `_matrix`.
        along_x: Of their columns.

    Returns:
        Shape (fields, columns, 3, rows), uint8, rounded to the nearest gray level.
    """
    num, (height, width, _) = len(fields), fields[0].shape
    values = np.empty((num, height, width * 3), np.float32)
    for value, field in zip(values, fields, strict=True):
        value[:] = field.reshape(height, width * 3)
    reduced = (along_y @ values.reshape(num * height, -1)).reshape(num, -1, width * 3)
    # OpenCV transposes several times as fast as a copy in another order.
    turned = np.empty((num, width * 3, reduced.shape[1]), np.float32)
    for block, rows in zip(turned, reduced, strict=True):
        cv2.transpose(rows, block)
    mixed = along_x @ turned.reshape(num * width, -1)
    return cv2.convertScaleAbs(mixed).reshape(num, -1, 3, reduced.shape[1])


def area_resample(
    image: NDArray[np.uint8],
    start_yx: tuple[float, float],
    scale_yx: tuple[float, float],
    size_yx: tuple[int, int],
) -> NDArray[np.uint8]:
    """Exact area coverage for any scale and offset.

    Args:
        image: Shape (h, w, 3), uint8.
        start_yx: Where the first output pixel begins, input pixels.
        scale_yx: Input pixels per output pixel.
        size_yx: Height and width of the output.

    Returns:
        Shape (*size_yx, 3), uint8, rounded to the nearest gray level.
    """
    height, width = image.shape[:2]
    weights, places = _taps(np.array([start_yx[0]]), scale_yx[0], size_yx[0], height)
    along_x = area_weights(start_yx[1], scale_yx[1], size_yx[1], width)
    out = np.empty((*size_yx, 3), np.uint8)
    # In blocks, so that a wide field is never held as floats; each pixel is summed in the same order in any block.
    num_rows = max(1, int(_BLOCK_BYTES / (12 * width * max(1.0, scale_yx[0]))))
    for first in range(0, size_yx[0], num_rows):
        block = slice(first, first + num_rows)
        top, bottom = int(places[:, block].min()), int(places[:, block].max()) + 1
        along_y = _matrix(weights[:, block], places[:, block] - top, bottom - top)
        (levels,) = _covered([image[top:bottom]], along_y, along_x)
        out[block] = cv2.transpose(levels.reshape(size_yx[1] * 3, -1)).reshape(-1, size_yx[1], 3)
    return out
