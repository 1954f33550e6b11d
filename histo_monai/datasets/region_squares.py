"""A region of a slide -> squares of one side that lie in it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from histo_monai.slides.annotations import Region, rasterize_regions

_FEWEST_PX, _MOST_PX = 4, 32
_MOST_MASK_PX = 2**24
_POLE_PX = 512
_ROUNDING = 1e-6
_SNAP = 0.01
"""A region longer or shorter than whole squares by less than this part of one counts as whole squares long."""


@dataclass(frozen=True)
class Squares:
    """Where squares may lie: inside the slide, and at least `min_fraction` of each inside the region.

    Attributes:
        side_px: Side, level-0 pixels, whole or not.
        size_yx: Height and width of the slide, level-0 pixels.
        min_fraction: Above 0, up to 1. Areas are counted on a grid of 32 × 32 places per square, 4 × 4 or more where a
            region has room for more than 16,384.
    """

    side_px: float
    size_yx: tuple[int, int]
    min_fraction: float

    def centers_in(self, region: Region, num: int) -> NDArray[np.float64]:
        """Centers of up to `num` squares side by side in a region, shape (n, 2), (y, x), level-0 pixels.

        They lie on a grid in the middle of the region's extent: of the possible ones, with as many squares as fit, or
        one more, along y and x, the one that has most. Where no grid has one: one square around the pole of
        inaccessibility, the place in the region that is farthest from its outline, if it is as good as those.
        """
        low = np.maximum(region.exterior_yx.min(axis=0), 0)
        high = np.minimum(region.exterior_yx.max(axis=0), self.size_yx)
        if (high <= low).any():
            return np.empty((0, 2))
        fits = (high - low) / self.side_px
        sides = [(max(1, math.floor(n + _SNAP)), max(1, math.ceil(n - _SNAP))) for n in fits]
        shapes = dict.fromkeys(itertools.product(*sides))
        grids = [self._on_grid(region, (low + high) / 2, shape) for shape in shapes]
        best = max(grids, key=len)
        if not len(best):
            best = self._around_pole(region, low, high)
        return best[_spread(best, num)]

    def share(self, center_yx: NDArray[np.float64], region: Region, other: Region) -> float:
        """Part of a square that is in both of two regions, 0..1."""
        one, two = (self._fill(some, center_yx, (1, 1)) for some in (region, other))
        return float((one & two).mean())

    def _on_grid(
        self, region: Region, middle_yx: NDArray[np.float64], shape: tuple[int, int]
    ) -> NDArray[np.float64]:
        """Centers of the good squares of a grid of this many rows and columns, row by row."""
        filled = self._fill(region, middle_yx, shape).mean(axis=(1, 3))
        good = np.argwhere(filled >= self.min_fraction - _ROUNDING)
        centers = middle_yx + (good + 0.5 - np.array(shape) / 2) * self.side_px
        half = self.side_px / 2 - _ROUNDING
        inside = ((centers >= half) & (centers <= np.array(self.size_yx) - half)).all(axis=1)
        return np.asarray(centers[inside])

    def _fill(
        self, region: Region, middle_yx: NDArray[np.float64], shape: tuple[int, int]
    ) -> NDArray[np.bool_]:
        """What of each square of a grid is inside; shape (rows, n, columns, n), bool."""
        rows, columns = shape
        num = min(_MOST_PX, max(_FEWEST_PX, math.isqrt(_MOST_MASK_PX // (rows * columns))))
        corner = middle_yx - np.array(shape) / 2 * self.side_px
        mask = rasterize_regions(
            [_moved(region, corner)], downsample=self.side_px / num, shape=(rows * num, columns * num)
        )
        return mask.reshape(rows, num, columns, num)

    def _around_pole(
        self, region: Region, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        step = float((high - low).max()) / _POLE_PX
        height, width = np.ceil((high - low) / step - _ROUNDING).astype(int)
        mask = rasterize_regions([_moved(region, low)], downsample=step, shape=(height, width))
        # What is around the region counts as outside, also where the slide ends.
        depth = ndimage.distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1]
        pole = low + (np.array(np.unravel_index(depth.argmax(), mask.shape)) + 0.5) * step
        return self._on_grid(region, pole, (1, 1))


def _moved(region: Region, origin_yx: NDArray[np.float64]) -> Region:
    return Region(region.exterior_yx - origin_yx, tuple(hole - origin_yx for hole in region.holes_yx))


def _spread(places: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """Numbers of up to `num` places far from each other, ascending: from the most central one on, the farthest next.

    Fewer are always among more.
    """
    if len(places) <= num:
        return np.arange(len(places))
    chosen = [int(((places - places.mean(axis=0)) ** 2).sum(axis=1).argmin())]
    distance = np.full(len(places), np.inf)
    while len(chosen) < num:
        distance = np.minimum(distance, ((places - places[chosen[-1]]) ** 2).sum(axis=1))
        chosen.append(int(distance.argmax()))
    return np.sort(np.array(chosen[:num]))
