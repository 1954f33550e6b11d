"""Masks -> regions, along pixel edges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from histo_monai.slides.annotations.regions import Region


def mask_regions(
    mask: NDArray[np.bool_], downsample: float, *, label: str = "", corner_yx: tuple[int, int] = (0, 0)
) -> list[Region]:
    """The exact outlines of a mask; `rasterize_regions` on the same grid restores the mask.

    Each region is one 4-connected part of the mask. Outlines are valid polygons for QuPath and OGC: none passes a place
    twice. Points on a straight line are dropped.

    Args:
        mask: Shape (h, w), bool.
        downsample: Level-0 pixels per mask pixel, i.e. mask_mpp / slide_mpp.
        corner_yx: Upper left corner of the mask in the slide, mask pixels.

    Returns:
        Regions in the order of their first pixel, row by row.

    Raises:
        ValueError: The mask is not two-dimensional and bool, or downsample is not positive.
    """
    if mask.ndim != 2 or mask.dtype != bool or not downsample > 0:
        raise ValueError(
            f"expected a mask (h, w) of bool and a positive downsample, got {mask.shape} {mask.dtype}, {downsample}"
        )
    padded = np.pad(mask, 1)
    parts, num_parts = ndimage.label(padded)
    corners = _corners(padded, parts)
    outlines = _closed_outlines(corners)
    exteriors: list[NDArray[np.float64]] = [np.empty((0, 2))] * num_parts
    holes: list[list[NDArray[np.float64]]] = [[] for _ in range(num_parts)]
    points = np.stack([corners.y, corners.x], axis=1)
    for outline in outlines:
        # The upper left corner of an outline comes first: the pixel below is inside, the pixel above outside.
        y, x = points[outline[0]]
        outline_yx = (points[outline] + corner_yx) * float(downsample)
        if padded[y + 1, x + 1]:
            exteriors[parts[y + 1, x + 1] - 1] = outline_yx
        else:
            holes[parts[y, x + 1] - 1].append(outline_yx)
    return [Region(one, tuple(some), label) for one, some in zip(exteriors, holes, strict=True)]


class _Corners(NamedTuple):
    """Corners of outlines, listed twice where two outlines meet or one meets itself.

    Arrays of shape (n,): `y` and `x` in pixels of the unpadded mask; whether the horizontal edge goes right from here
    (else left), and the vertical one down (else up).
    """

    y: NDArray[np.int64]
    x: NDArray[np.int64]
    right: NDArray[np.bool_]
    down: NDArray[np.bool_]


def _corners(padded: NDArray[np.bool_], parts: NDArray[np.int32]) -> _Corners:
    above, left = slice(None, -1), slice(None, -1)
    below, right = slice(1, None), slice(1, None)
    up = padded[above, left] != padded[above, right]
    down = padded[below, left] != padded[below, right]
    leftward = padded[above, left] != padded[below, left]
    rightward = padded[above, right] != padded[below, right]
    y, x = np.nonzero((up != down) & (leftward != rightward))
    single = _Corners(y, x, rightward[y, x], down[y, x])
    y, x = np.nonzero(up & down & leftward & rightward)
    # Two pixels touch here. One part: the corner is cut between the holes, or hole and outside, that touch here too.
    # Two parts: each keeps its own corner.
    main = padded[y, x]  # The upper left and the lower right pixel are set, else the other two.
    first = np.where(main, parts[y, x], parts[y, x + 1])
    second = np.where(main, parts[y + 1, x + 1], parts[y + 1, x])
    # The edges up and left, and down and right, enclose the upper left and the lower right pixel.
    along_main = main == (first != second)
    meeting = [
        _Corners(y, x, np.zeros(len(y), bool), ~along_main),
        _Corners(y, x, np.ones(len(y), bool), along_main),
    ]
    return _Corners(*(np.concatenate(some) for some in zip(single, *meeting, strict=True)))


def _closed_outlines(corners: _Corners) -> list[NDArray[np.int64]]:
    """Numbers of the corners along each outline, from its upper left corner to the right."""
    along_rows = np.lexsort((corners.right, corners.x, corners.y))
    along_columns = np.lexsort((corners.down, corners.y, corners.x))
    # Edges of one row or column never touch: first and second corner are joined, third and fourth, and so on.
    in_row, in_column = np.empty_like(along_rows), np.empty_like(along_rows)
    for joined, order in ((in_row, along_rows), (in_column, along_columns)):
        joined[order[::2]], joined[order[1::2]] = order[1::2], order[::2]
    across, onwards = in_row.tolist(), in_column.tolist()
    visited = bytearray(len(across))
    path: list[int] = []
    lengths = []
    for start in along_rows.tolist():
        if visited[start]:
            continue
        at, before = start, len(path)
        while not visited[at]:
            other = across[at]
            visited[at] = visited[other] = 1
            path += (at, other)
            at = onwards[other]
        lengths.append(len(path) - before)
    return np.split(np.array(path, np.int64), np.cumsum(lengths)[:-1]) if lengths else []
