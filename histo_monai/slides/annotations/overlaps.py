"""Pairs of overlapping holes and outlines, for many of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.annotations.boxes import BoxTree
from histo_monai.slides.annotations.raster import rasterize_each
from histo_monai.slides.annotations.regions import Region

_COARSE_PX, _FINE_PX = 16, 512
"""Raster sides of the two passes: few pixels suffice for most overlaps."""
_PAIRS = 1024


def overlaps(
    holes: Sequence[NDArray[np.float64]], exteriors: Sequence[NDArray[np.float64]]
) -> Iterator[tuple[int, int]]:
    """Numbers (hole, exterior) of pairs with a common area, in ascending order.

    An overlap narrower than 1/512 of the common extent is ignored.
    """
    if not holes:
        return
    (low, high), (hole_low, hole_high) = (
        [np.array([getattr(points, which)(axis=0) for points in some]) for which in ("min", "max")]
        for some in (exteriors, holes)
    )
    near = BoxTree(low, high).pairs(hole_low, hole_high)
    while some := list(islice(near, _PAIRS)):
        overlap = _overlap([(holes[hole], exteriors[exterior]) for hole, exterior in some], _COARSE_PX)
        for (hole, exterior), is_overlap in zip(some, overlap, strict=True):
            if is_overlap or _overlap([(holes[hole], exteriors[exterior])], _FINE_PX)[0]:
                yield hole, exterior


def _overlap(
    pairs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], side_px: int
) -> NDArray[np.bool_]:
    """Whether both outlines cover some pixel of their common extent, rastered to `side_px` rows and columns."""
    scaled: list[list[Region]] = [[], []]
    for pair in pairs:
        low = np.max([points.min(axis=0) for points in pair], axis=0)
        high = np.min([points.max(axis=0) for points in pair], axis=0)
        for regions, points in zip(scaled, pair, strict=True):
            regions.append(Region((points - low) / (high - low) * side_px))
    one, other = (
        rasterize_each(some, downsample=1, shape=(side_px, side_px), corners_yx=np.zeros((len(some), 2)))
        for some in scaled
    )
    return np.asarray((one & other).any(axis=(1, 2)))
