"""Regions of a slide -> squares of equal side inside them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from histo_monai.slides.annotations import Region, rasterize_each

Floats = NDArray[np.float64]

_FEWEST_PX, _MOST_PX = 4, 32
_MOST_MASK_PX = 2**24
_CHUNK_PX = 2**22
_POLE_PX = 64, 128
_ROUNDING = 1e-6
_SNAP = 0.01
"""A region counts as whole squares long if its length differs by less than this fraction of a square."""


@dataclass(frozen=True)
class Squares:
    """Placement of squares: inside the slide, and at least `min_fraction` of each inside the region.

    Attributes:
        side_px: Side, level-0 pixels, may be fractional.
        size_yx: Height and width of the slide, level-0 pixels.
        min_fraction: Above 0, up to 1. Areas are counted on a grid of 32 × 32 places per square, or as few as 4 × 4 for
            regions of more than 16,384 squares.
    """

    side_px: float
    size_yx: tuple[int, int]
    min_fraction: float

    def centers_in(self, regions: Sequence[Region], num: int) -> list[Floats]:
        """Centers of up to `num` squares side by side in each region, shape (n, 2), (y, x), level-0 pixels.

        They lie on a grid in the middle of the region's extent. Candidate grids have as many squares as fit along y and
        x, or one more; the grid with most good squares is used. If no grid has one, a square around the pole of
        inaccessibility, the place farthest from the outline, is tried.
        """
        per_region = [np.empty((0, 2))] * len(regions)
        if not regions:
            return per_region
        low = np.maximum([region.exterior_yx.min(axis=0) for region in regions], 0)
        high = np.minimum([region.exterior_yx.max(axis=0) for region in regions], self.size_yx)
        fits = (high - low) / self.side_px
        possible = (high > low).all(axis=1) & (self._most(high - low) >= self._least)
        fewest = np.maximum(1, np.floor(fits + _SNAP)).astype(np.int64)
        shapes = np.maximum(1, np.ceil(fits - _SNAP)).astype(np.int64)
        poles = []
        for shape, numbers in _alike(shapes, np.flatnonzero(possible)):
            some = [regions[number] for number in numbers]
            grids = _Grids.around(self, some, (low + high)[numbers] / 2, shape)
            for number, centers in zip(numbers.tolist(), grids.best(fewest[numbers]), strict=True):
                per_region[number] = centers[_spread(centers, num)]
            empty = np.array([not len(per_region[number]) for number in numbers])
            poles += numbers[empty & grids.may_hold_one()].tolist()
        for number in poles:
            per_region[number] = self._around_pole(regions[number], low[number], high[number])
        return per_region

    def common_fractions(
        self, centers_yx: Floats, regions: Sequence[Region], others: Sequence[Region]
    ) -> Floats:
        """Fraction of each square that lies in both of two regions, 0..1, shape (n,)."""
        one, two = (
            rasterize_each(
                some,
                downsample=self.side_px / _MOST_PX,
                shape=(_MOST_PX, _MOST_PX),
                corners_yx=centers_yx - self.side_px / 2,
            )
            for some in (regions, others)
        )
        return np.asarray((one & two).mean(axis=(1, 2)))

    def can_cover(self, extent_yx: Floats) -> NDArray[np.bool_]:
        """Whether areas of these extents, shape (n, 2), can cover `min_fraction` of a square."""
        return np.asarray(self._most(extent_yx) >= self.min_fraction)

    def keeps_inside(self, centers: Floats, axis: int) -> NDArray[np.bool_]:
        """Whether squares around these centers lie on the slide, along y or x."""
        half = self.side_px / 2 - _ROUNDING
        return (centers >= half) & (centers <= self.size_yx[axis] - half)

    @property
    def _least(self) -> float:
        return self.min_fraction - _ROUNDING

    def _most(self, extent_yx: Floats) -> Floats:
        """Largest fraction of a square that extents can cover, shape (n,)."""
        lines = np.minimum(np.floor(extent_yx / self.side_px * _MOST_PX) + 1, _MOST_PX)
        return np.asarray(lines.prod(axis=1) / _MOST_PX**2)

    def _around_pole(self, region: Region, low: Floats, high: Floats) -> Floats:
        pole, depth, step = _deepest(region, low, high, _POLE_PX[0])
        reach = depth + 4 * step
        pole, _, _ = _deepest(
            region, np.maximum(low, pole - reach), np.minimum(high, pole + reach), _POLE_PX[1]
        )
        (centers,) = _Grids.around(self, [region], pole[None], (1, 1)).best(np.ones((1, 2), np.int64))
        return centers


def _alike(
    shapes: NDArray[np.int64], numbers: NDArray[np.int64]
) -> Iterator[tuple[tuple[int, int], NDArray[np.int64]]]:
    """Chunks of regions with equally shaped grids: the shape and the regions' numbers."""
    kinds, kind = np.unique(shapes[numbers], axis=0, return_inverse=True)
    order = np.argsort(kind.ravel(), kind="stable")
    bounds = np.searchsorted(kind.ravel()[order], np.arange(len(kinds) + 1))
    for (rows, columns), start, end in zip(
        kinds.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
    ):
        at_once = max(1, _CHUNK_PX // (rows * columns * _MOST_PX**2))
        for at in range(start, end, at_once):
            yield (rows, columns), numbers[order[at : min(end, at + at_once)]]


@dataclass(frozen=True)
class _Grids:
    """Counts of places in half squares; a grid with one row or column less begins half a square farther in.

    Attributes:
        squares: Placement of the squares.
        middle_yx: Middles of the grids, shape (n, 2).
        halves: Number of places inside, shape (n, 2 · rows, 2 · columns), of the largest grid.
        num_px: Places along a square.
    """

    squares: Squares
    middle_yx: Floats
    halves: NDArray[np.int64]
    num_px: int

    @classmethod
    def around(
        cls, squares: Squares, regions: Sequence[Region], middle_yx: Floats, shape: tuple[int, int]
    ) -> _Grids:
        """Counts for grids of this number of rows and columns."""
        rows, columns = shape
        num_px = min(_MOST_PX, max(_FEWEST_PX, math.isqrt(_MOST_MASK_PX // (rows * columns)) // 2 * 2))
        masks = rasterize_each(
            regions,
            downsample=squares.side_px / num_px,
            shape=(rows * num_px, columns * num_px),
            corners_yx=middle_yx - np.array(shape) / 2 * squares.side_px,
        )
        half = num_px // 2
        halves = masks.reshape(len(regions), 2 * rows, half, 2 * columns, half).sum(axis=(2, 4))
        return cls(squares, middle_yx, halves, num_px)

    def best(self, fewest: NDArray[np.int64]) -> Iterator[Floats]:
        """Centers of the good squares of the grid with most good squares, for each region, row by row.

        Args:
            fewest: Least rows and columns of the grids, shape (n, 2): equal to the largest, or one less.
        """
        rows, columns = np.array(self.halves.shape[1:]) // 2
        most = np.zeros(len(fewest), np.int64)
        which = np.full(len(fewest), -1)
        grids: list[tuple[NDArray[np.bool_], Floats, Floats]] = []
        for less_y, less_x in ((1, 1), (1, 0), (0, 1), (0, 0)):
            shape = int(rows - less_y), int(columns - less_x)
            if min(shape) < 1:
                continue
            good, centers_y, centers_x = self._good(shape)
            num = good.sum(axis=(1, 2)) * (fewest <= shape).all(axis=1)
            which[num > most] = len(grids)
            most = np.maximum(most, num)
            grids.append((good, centers_y, centers_x))
        for number, grid in enumerate(which.tolist()):
            if grid < 0:
                yield np.empty((0, 2))
                continue
            good, centers_y, centers_x = grids[grid]
            row, column = np.nonzero(good[number])
            yield np.stack([centers_y[number, row], centers_x[number, column]], axis=1)

    def may_hold_one(self) -> NDArray[np.bool_]:
        """Whether a region may hold a square off the grid, with one more row and column of places inside."""
        least = (self.squares.min_fraction - _ROUNDING) * self.num_px**2
        return np.asarray(self.halves.sum(axis=(1, 2)) + 2 * self.num_px >= least)

    def _good(self, shape: tuple[int, int]) -> tuple[NDArray[np.bool_], Floats, Floats]:
        """Mask of the good squares of a grid, shape (n, rows, columns), and the centers of its rows and columns."""
        rows, columns = shape
        first_y, first_x = self.halves.shape[1] // 2 - rows, self.halves.shape[2] // 2 - columns
        inside = self.halves[:, first_y : first_y + 2 * rows, first_x : first_x + 2 * columns]
        filled = inside.reshape(-1, rows, 2, columns, 2).sum(axis=(2, 4)) / self.num_px**2
        centers = [
            self.middle_yx[:, axis, None] + (np.arange(num) + 0.5 - num / 2) * self.squares.side_px
            for axis, num in enumerate(shape)
        ]
        in_y, in_x = (self.squares.keeps_inside(some, axis) for axis, some in enumerate(centers))
        enough = filled >= self.squares.min_fraction - _ROUNDING
        return enough & in_y[:, :, None] & in_x[:, None, :], centers[0], centers[1]


def _deepest(region: Region, low: Floats, high: Floats, num_px: int) -> tuple[Floats, float, float]:
    """Place in a window farthest from the outside, its distance, and the precision of both, px."""
    step = float((high - low).max()) / num_px
    height, width = np.ceil((high - low) / step - _ROUNDING).astype(int)
    (mask,) = rasterize_each([region], downsample=step, shape=(height, width), corners_yx=low[None])
    # The padding counts as outside, also at the slide's edge.
    depth = ndimage.distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1]
    pole = np.array(np.unravel_index(depth.argmax(), mask.shape))
    return low + (pole + 0.5) * step, float(depth.max()) * step, step


def _spread(places: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """Ascending numbers of up to `num` places far from each other: the most central first, then the farthest.

    A smaller `num` gives a subset of a larger one.
    """
    if len(places) <= num:
        return np.arange(len(places))
    chosen = [int(((places - places.mean(axis=0)) ** 2).sum(axis=1).argmin())]
    distance = np.full(len(places), np.inf)
    while len(chosen) < num:
        distance = np.minimum(distance, ((places - places[chosen[-1]]) ** 2).sum(axis=1))
        chosen.append(int(distance.argmax()))
    return np.sort(np.array(chosen[:num]))
