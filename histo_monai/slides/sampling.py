"""Tissue mask -> patch centers."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.utils.errors import InputError

_CHUNK = 4096


def sample_centers(
    mask: NDArray[np.bool_],
    mask_mpp: float,
    slide_mpp: float,
    num: int,
    side_um: float,
    min_tissue_fraction: float,
    generator: np.random.Generator,
    grid_px: int = 1,
    within_um: float = 0.0,
) -> NDArray[np.int64]:
    """Random distinct centers whose square field holds enough tissue, uniform over all such centers.

    Area outside the slide counts as no tissue. Sampling runs over mask pixels without replacement and starts over
    when all are used; within a pixel it returns each level-0 pixel at most once.

    Args:
        mask: Tissue, shape (h, w), bool, from the slide's upper left corner.
        mask_mpp: µm per mask pixel.
        slide_mpp: µm per level-0 pixel.
        side_um: Side of the tissue field, µm (the coarsest patch's side_px * mpp).
        min_tissue_fraction: Least tissue fraction of the field, 0..1; 0 still requires some tissue.
        generator: Equal generators give equal centers.
        grid_px: Centers are multiples of this many level-0 pixels. With the coarsest level's downsample and an even
            side_px, boxes of the levels' own resolutions fall on whole pixels and need no resampling.
        within_um: Side of a field that must lie inside the slide, µm; excludes the mask's last row and column, which
            may reach beyond the slide's edge. 0 places no limit.

    Returns:
        Shape (n, 2), int64, (y, x) in level-0 pixels; n < num if fewer centers exist, 0 if none is eligible.

    Raises:
        InputError: An argument is out of range.
    """
    _check(mask, (mask_mpp, slide_mpp, side_um), num, min_tissue_fraction, grid_px, within_um)
    field_px, step_px = side_um / mask_mpp, grid_px * slide_mpp / mask_mpp
    low = within_um / mask_mpp / 2
    high = np.array(mask.shape) - (low + 1 if within_um else 0)
    pixels = _may_hold(mask, field_px, min_tissue_fraction)
    pixels = pixels[((pixels + 1 >= low) & (pixels <= high)).all(axis=1)]
    # Grid points inside each pixel: `count` points from `first`, along y and x.
    first = np.ceil(pixels / step_px - 1e-9).astype(np.int64)
    count = np.ceil((pixels + 1) / step_px - 1e-9).astype(np.int64) - first
    points = count.prod(axis=1)
    start = generator.integers(0, np.maximum(points, 1))
    stride = _stride(points)
    chunks = [np.zeros((0, 2), np.int64)]
    missing = num
    for turn in range(int(points.max(initial=0))):
        shuffled = generator.permutation(np.flatnonzero(points > turn))
        while missing > 0 and len(shuffled):
            chosen, shuffled = np.split(shuffled, [max(_CHUNK, 2 * missing)])
            # A random start, then a stride that visits every point of the pixel once.
            number = (start[chosen] + turn * stride[chosen]) % points[chosen]
            grid = first[chosen] + np.stack(np.divmod(number, count[chosen, 1]), axis=1)
            places = grid * step_px
            fraction = tissue_fraction(mask, places, field_px)
            is_inside = ((places >= low) & (places <= high)).all(axis=1)
            eligible = grid[(fraction > 0) & (fraction >= min_tissue_fraction - 1e-9) & is_inside][:missing]
            chunks.append(eligible)
            missing -= len(eligible)
        if missing <= 0:
            break
    return np.concatenate(chunks) * grid_px


def tissue_fraction(
    mask: NDArray[np.bool_], centers_yx: NDArray[np.floating], side_px: float
) -> NDArray[np.float64]:
    """Tissue fraction of each square field, by exact area; no tissue outside the mask.

    Args:
        mask: Shape (h, w), bool.
        centers_yx: Centers of the fields, shape (n, 2), continuous mask pixels (pixel-edge convention).
        side_px: Side of the fields, mask pixels.

    Returns:
        Shape (n,), float64, 0..1.
    """
    # The integral image of constant pixels is bilinear between their edges, so interpolation is exact.
    total = np.asarray(cv2.integral(mask.astype(np.uint8), sdepth=cv2.CV_64F), np.float64)
    top, left = (np.asarray(centers_yx, float) - side_px / 2).T
    bottom, right = top + side_px, left + side_px
    inside = (
        _at(total, bottom, right) - _at(total, top, right) - _at(total, bottom, left) + _at(total, top, left)
    )
    return inside / side_px**2


def _at(total: NDArray[np.float64], y: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    y, x = np.clip(y, 0, total.shape[0] - 1), np.clip(x, 0, total.shape[1] - 1)
    row = np.minimum(y.astype(np.int64), total.shape[0] - 2)
    column = np.minimum(x.astype(np.int64), total.shape[1] - 2)
    down, right = y - row, x - column
    above = total[row, column] * (1 - right) + total[row, column + 1] * right
    below = total[row + 1, column] * (1 - right) + total[row + 1, column + 1] * right
    return np.asarray(above * (1 - down) + below * down)


def _may_hold(mask: NDArray[np.bool_], field_px: float, min_tissue_fraction: float) -> NDArray[np.int64]:
    """Mask pixels (y, x) that may hold a center with enough tissue: a superset of the eligible pixels."""
    # A square of whole pixels that contains the field for any center in its pixel.
    side = 2 * int(np.ceil(field_px / 2)) + 1
    tissue = cv2.boxFilter(
        mask.astype(np.float32), cv2.CV_64F, (side, side), normalize=False, borderType=cv2.BORDER_CONSTANT
    )
    return np.argwhere(tissue.reshape(mask.shape) >= max(0.5, min_tissue_fraction * field_px**2 - 0.5))


def _stride(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """About 0.62 of each number, coprime to it."""
    kinds, which = np.unique(np.maximum(points, 1), return_inverse=True)
    stride = np.maximum(1, (kinds * 0.618).astype(np.int64))
    while (has_divisor := (np.gcd(stride, kinds) > 1)).any():
        stride[has_divisor] += 1
    return stride[which]


def _check(
    mask: NDArray[np.bool_],
    lengths_um: tuple[float, float, float],
    num: int,
    min_tissue_fraction: float,
    grid_px: int,
    within_um: float,
) -> None:
    if mask.ndim != 2 or mask.dtype != bool or mask.size == 0:
        raise InputError(f"tissue mask: got {mask.shape} {mask.dtype}. Fix: pass (h, w) bool.")
    if not min(lengths_um) > 0:
        raise InputError(f"mask_mpp, slide_mpp and side_um: got {lengths_um}. Fix: pass positive numbers.")
    if within_um < 0:
        raise InputError(f"within_um: got {within_um}. Fix: pass at least 0.")
    if num < 0 or grid_px < 1:
        raise InputError(f"num and grid_px: got {num} and {grid_px}. Fix: pass at least 0 and at least 1.")
    if not 0 <= min_tissue_fraction <= 1:
        raise InputError(f"min_tissue_fraction: got {min_tissue_fraction}. Fix: pass a fraction in 0..1.")
