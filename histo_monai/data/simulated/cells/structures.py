"""Glands, ducts and vessels: star-shaped outlines with a wall, a lumen and nuclei along the wall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from histo_monai.data.simulated.raster.lattice import F32, Grid, scatter
from histo_monai.utils.process.products import product

_HARMONICS = np.arange(2, 7)
FAR_UM = -1e3
Window = tuple[tuple[int, int], tuple[int, int]]  # First row, and the row after the last; then the columns.


@dataclass(frozen=True)
class RingKind:
    """A family of ring-shaped structures; lengths in µm.

    `spacing_um` is the distance between centers, `radius_um` the range of the mean radius, `wall_um` the range of
    the epithelium's height, `irregular` the roughness of the outline, `oval` the largest elongation,
    `pitch_um` the distance between nuclei along the wall, `rows` the rows of nuclei across it.
    """

    spacing_um: float
    radius_um: tuple[float, float]
    wall_um: tuple[float, float]
    irregular: float
    oval: float
    pitch_um: float
    rows: float
    jitter: float = 0.25


@dataclass(frozen=True)
class Rings:
    """The structures of one kind that touch a tile, one row each."""

    y_um: F32
    x_um: F32
    radius_um: F32
    wall_um: F32
    amplitude: F32  # (n, 5), relative
    phase: F32  # (n, 5), radians
    random: F32  # (n, 4), 0..1, for objects inside the structures

    def outline(self, index: int, theta: F32) -> F32:
        """Radius in µm of structure `index` in the directions `theta` (radians)."""
        waves = np.cos(theta[..., None] * _HARMONICS.astype(np.float32) + self.phase[index])
        return np.asarray(
            self.radius_um[index] * (1 + product(waves, self.amplitude[index])), dtype=np.float32
        )


def find_rings(
    kind: RingKind,
    bounds_um: tuple[float, float, float, float],
    accept: Callable[[F32, F32, F32], F32],
    seed: int,
) -> Rings:
    """Structures whose center lies within `bounds_um` (top, left, bottom, right).

    Args:
        kind: Sizes.
        bounds_um: Area of the centers; widen it by the largest radius.
        accept: y, x, radius (all µm) -> probability of each structure.
        seed: Seed of the structures.
    """
    y, x, u = scatter(bounds_um, kind.spacing_um, kind.jitter, seed, 20)
    low, high = kind.radius_um
    radius = low + (high - low) * u[0]
    keep = u[1] < accept(y, x, radius)
    u = u[:, keep]
    amplitude = ((u[2:7] - 0.5) * 2 * kind.irregular / np.array([1, 1, 1.4, 1.8, 2.2])[:, None]).T
    amplitude[:, 0] += (kind.oval - 1) * 0.5 * u[7]
    wall = kind.wall_um[0] + (kind.wall_um[1] - kind.wall_um[0]) * u[8]
    return Rings(
        y[keep],
        x[keep],
        radius[keep].astype(np.float32),
        wall.astype(np.float32),
        amplitude.astype(np.float32),
        (u[9:14] * 2 * np.pi).T.astype(np.float32),
        u[14:18].T,
    )


def depth_maps(rings: Rings, grid: Grid, within: Window | None = None) -> tuple[F32, F32]:
    """Depth of each sample inside a structure and inside its lumen, µm; `FAR_UM` far outside.

    Args:
        within: Rows and columns of interest; samples outside may stay at `FAR_UM`.

    Returns:
        Two arrays of shape (grid.height, grid.width), float32.
    """
    depth = np.full((grid.height, grid.width), FAR_UM, np.float32)
    lumen = depth.copy()
    rows, columns = grid.rows_um(), grid.columns_um()
    (first_row, last_row), (first_column, last_column) = within or ((0, grid.height), (0, grid.width))
    for i in range(len(rings.y_um)):
        reach = float(rings.radius_um[i] * (1 + np.abs(rings.amplitude[i]).sum())) + 12
        top, bottom = np.searchsorted(rows, [rings.y_um[i] - reach, rings.y_um[i] + reach])
        left, right = np.searchsorted(columns, [rings.x_um[i] - reach, rings.x_um[i] + reach])
        top, bottom = max(top, first_row), min(bottom, last_row)
        # Columns are not cut: rounding of a matrix product may depend on the number of columns.
        if top >= bottom or max(left, first_column) >= min(right, last_column):
            continue
        dy, dx = rows[top:bottom, None] - rings.y_um[i], columns[None, left:right] - rings.x_um[i]
        inside = rings.outline(i, np.arctan2(dy, dx)) - np.sqrt(dy * dy + dx * dx)
        view = depth[top:bottom, left:right]
        np.maximum(view, inside, out=view)
        view = lumen[top:bottom, left:right]
        np.maximum(view, inside - rings.wall_um[i], out=view)
    return depth, lumen


_BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))
"""A larger float64 below 1 rounds to the float32 1, one of 30 million values."""


def wall_nuclei(rings: Rings, kind: RingKind, basal_um: float, seed: int) -> tuple[F32, F32, F32, F32]:
    """Nuclei along the walls: y, x in µm, direction across the wall in radians, a random number from 0 to below 1."""
    nuclei: list[tuple[F32, F32, F32, F32]] = []
    for i in range(len(rings.y_um)):
        rng = np.random.default_rng([seed, *(int(v * 65536) for v in rings.random[i, :3])])
        per_row = max(6, int(2 * np.pi * (rings.radius_um[i] - basal_um) / kind.pitch_um))
        count = max(6, round(per_row * kind.rows))
        theta = (np.arange(count) * (2 * np.pi / per_row) + rng.normal(0, 0.9 / per_row, count)).astype(
            np.float32
        )
        room = max(0.0, float(rings.wall_um[i]) - basal_um - 4.5)
        deep = (
            basal_um + rng.normal(0, 0.7, count) + room * rng.random(count) * min(1.0, kind.rows - 1 + 0.12)
        )
        radius = rings.outline(i, theta) - deep
        y, x = rings.y_um[i] + radius * np.sin(theta), rings.x_um[i] + radius * np.cos(theta)
        angle = theta + rng.normal(0, 0.10 + 0.12 * (kind.rows - 1), count)
        random = np.minimum(rng.random(count), _BELOW_ONE)
        nuclei.append(tuple(a.astype(np.float32) for a in (y, x, angle, random)))  # type: ignore[arg-type]
    if not nuclei:
        empty = np.empty(0, np.float32)
        return empty, empty, empty, empty
    every = [np.concatenate(parts) for parts in zip(*nuclei, strict=True)]
    return every[0], every[1], every[2], every[3]


def polygonal_cells(
    grid: Grid, spacing_um: float, seed: int, bend_um: tuple[F32, F32], wanted: NDArray[np.bool_]
) -> F32:
    """Distance in µm to the nearest border between neighboring cells of a Voronoi mosaic (fat cells).

    Args:
        spacing_um: Mean width of a cell.
        seed: Seed of the mosaic.
        bend_um: Displacement of the samples in y and x that bends the borders, each of the grid's shape.
        wanted: Samples of interest, of the grid's shape; other results are undefined.

    Returns:
        Shape (grid.height, grid.width), float32: half of (second nearest - nearest center).
    """
    rows, columns = grid.rows_um(), grid.columns_um()
    bounds = (
        rows[0] - 2 * spacing_um,
        columns[0] - 2 * spacing_um,
        rows[-1] + 2 * spacing_um,
        columns[-1] + 2 * spacing_um,
    )
    y, x, u = scatter(bounds, spacing_um, 0.33, seed)
    nearest = np.full((grid.height, grid.width), 1e6, np.float32)
    second = nearest.copy()
    reach = 1.75 * spacing_um
    for cy, cx, extra in zip(y.tolist(), x.tolist(), (u[0] * 0.35 * spacing_um).tolist(), strict=True):
        top, bottom = np.searchsorted(rows, [cy - reach, cy + reach])
        left, right = np.searchsorted(columns, [cx - reach, cx + reach])
        down, across = (np.flatnonzero(wanted[top:bottom, left:right].any(axis)) for axis in (1, 0))
        if not len(down):
            continue
        top, bottom = top + down[0], top + down[-1] + 1
        left, right = left + across[0], left + across[-1] + 1
        window = slice(top, bottom), slice(left, right)
        dy = rows[top:bottom, None] + bend_um[0][window] - cy
        dx = columns[None, left:right] + bend_um[1][window] - cx
        distance = np.sqrt(dy * dy + dx * dx) + np.float32(extra)
        first, other = nearest[window], second[window]
        np.minimum(other, np.maximum(first, distance), out=other)
        np.minimum(first, distance, out=first)
    return (second - nearest) * np.float32(0.5)
