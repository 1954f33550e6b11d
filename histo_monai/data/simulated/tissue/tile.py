"""The working area of one rendered tile: rasters, densities and the nuclei stamped so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.data.simulated.cells.nuclei import stamp
from histo_monai.data.simulated.cells.structures import Window
from histo_monai.data.simulated.raster.lattice import F32, Grid, fractal, magnify, noise, scatter, wrap
from histo_monai.data.simulated.tissue.world import TEXTURE_PX, World

MARGIN_UM = 160.0  # Reach of structures into a tile from a center outside.
HALO_UM = 14.0  # Half for nuclei, half for blur and sharpening.
BAND_PX = 64  # Rows painted together.

Band = tuple[slice, slice]
Density = float | Callable[[Band], NDArray[np.floating]]
"""Optical density of a stain, everywhere or in a band of the tile's pixels."""


class Tile:
    """A window of a world with its halo; `top_px`, `left_px` and the sizes are multiples of `world.coarse_px`.

    Attributes:
        hematoxylin, eosin: Densities, shape (height, width), float32.
        nuclei: Hematoxylin density and coverage of stamped nuclei, shape (height, width, 2).
        malignant: Mask of painted malignant epithelium, shape (height, width), bool.
        coarse: The 2 µm raster of the tile and `MARGIN_UM` around it; regions and glands are decided on it.
    """

    def __init__(self, world: World, top_px: int, left_px: int, height: int, width: int) -> None:
        self.world = world
        self.top_px, self.left_px, self.height, self.width = top_px, left_px, height, width
        self.hematoxylin = np.zeros((height, width), np.float32)
        self.eosin = np.zeros((height, width), np.float32)
        self.nuclei = np.zeros((height, width, 2), np.float32)
        k = world.coarse_px
        step = k * world.mpp
        self.margin = int(np.ceil(MARGIN_UM / step))
        self.coarse = Grid(
            (top_px // k - self.margin) * step,
            (left_px // k - self.margin) * step,
            step,
            height // k + 2 * self.margin,
            width // k + 2 * self.margin,
        )
        self.regions = world.plan.regions(self.coarse)
        self.malignant = np.zeros((height, width), np.bool_)
        self._flow: tuple[F32, F32] | None = None
        self._direction: F32 | None = None

    def within(self) -> Window:
        """Rows and columns of the coarse raster on which the tile's pixels and nuclei depend."""
        reach = min(self.margin, int(np.ceil(HALO_UM / self.coarse.step_um)) + 2)
        first, rows, columns = self.margin - reach, self.coarse.height, self.coarse.width
        return (first, rows - first), (first, columns - first)

    def wanted(self, weight: F32) -> NDArray[np.bool_]:
        """Mask of the coarse raster's samples on which a tissue of this weight depends; shape of the raster."""
        rows, columns = (slice(*ends) for ends in self.within())
        out = np.zeros(weight.shape, np.uint8)
        out[rows, columns] = weight[rows, columns] > 0
        return cv2.dilate(out, np.ones((5, 5), np.uint8)).astype(np.bool_)

    def region(self, name: str) -> F32 | None:
        """A tissue's weights on the coarse raster; None if the tile has none of the tissue."""
        values = self.regions.get(name)
        if values is None or float(values.max()) < 0.01:
            return None
        return values

    def full(self, values: F32) -> F32:
        """A field of the coarse raster at the tile's pixels, shape (height, width)."""
        m, k = self.margin, self.world.coarse_px
        inner = values[m - 1 : values.shape[0] - m + 1, m - 1 : values.shape[1] - m + 1]
        return magnify(np.ascontiguousarray(inner), k)[k : k + self.height, k : k + self.width]

    def touches(self, values: F32) -> bool:
        """Whether a coarse field is above zero anywhere on the tile itself."""
        m = self.margin - 1
        return bool(values[m:-m, m:-m].max() > 0.004)

    def noise(self, cell_um: float, seed: int, octaves: int = 1) -> F32:
        """A random field of the slide on the coarse raster."""
        if octaves == 1:
            return noise(self.coarse, cell_um, seed)
        return fractal(self.coarse, cell_um, seed, octaves)

    def grain(self, shift: int = 0) -> F32:
        """The slide's fine isotropic texture at the tile's pixels; `shift` selects another part."""
        return wrap(self.world.grain, self.top_px + shift, self.left_px + 3 * shift, self.height, self.width)

    def bounds_um(self, reach_um: float) -> tuple[float, float, float, float]:
        """Top, left, bottom, right of the tile widened by `reach_um`."""
        mpp = self.world.mpp
        top, left = self.top_px * mpp - reach_um, self.left_px * mpp - reach_um
        return top, left, top + self.height * mpp + 2 * reach_um, left + self.width * mpp + 2 * reach_um

    def flow(self) -> tuple[F32, F32]:
        """Coordinates along and across the fibers on the coarse raster, µm."""
        if self._flow is None:
            seed, angle = self.world.seed, self.world.traits.fiber_angle
            y, x = self.coarse.rows_um()[:, None], self.coarse.columns_um()[None, :]
            sway = (
                70 * self.noise(330, seed + 11)
                + 11 * self.noise(62, seed + 12)
                + 2.2 * self.noise(19, seed + 14)
            )
            along = (
                x * np.float32(np.cos(angle))
                + y * np.float32(np.sin(angle))
                + 40 * self.noise(400, seed + 13)
            )
            across = y * np.float32(np.cos(angle)) - x * np.float32(np.sin(angle)) + sway
            if "capsule_across" in self.regions:  # Fibers run along the capsule.
                capsule = self.regions["capsule"] > 0.5
                along = np.where(capsule, self.regions["capsule_along"], along)
                across = np.where(capsule, self.regions["capsule_across"] + 0.1 * sway, across)
            self._flow = along.astype(np.float32), across.astype(np.float32)
        return self._flow

    def fiber_direction(self) -> F32:
        """Direction of the fibers on the coarse raster, radians from +x."""
        if self._direction is None:
            slope_y, slope_x = np.gradient(self.flow()[1])
            self._direction = np.arctan2(-slope_x, slope_y).astype(np.float32)
        return self._direction

    def fibers(self, weight: F32, stretch: float = 1.0) -> F32:
        """The slide's fiber texture laid along the flow where `weight` (at the tile's pixels) is above zero, else 0.

        Returns:
            Shape (height, width), float32, about unit variance.
        """
        out = np.zeros((self.height, self.width), np.float32)
        rows, columns = (np.flatnonzero(weight.any(axis)) for axis in (1, 0))
        if not len(rows):
            return out
        window = slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)
        along, across = self.flow()
        scale = np.float32(1 / self.world.mpp)
        # Whole periods are subtracted, so that float32 has sub-pixel precision far from the origin.
        m = self.margin
        maps = []
        for values, factor in ((along, scale / np.float32(stretch)), (across, scale)):
            pixels = values.astype(np.float64) * float(factor)
            pixels -= np.floor(pixels[m, m] / TEXTURE_PX) * TEXTURE_PX
            maps.append(np.ascontiguousarray(self.full(pixels.astype(np.float32))[window]))
        texture = self.world.fibers
        out[window] = cv2.remap(texture, maps[0], maps[1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
        return out

    def lay(self, weight: F32, hematoxylin: Density, eosin: Density) -> None:
        """Paint densities over the tile, with `weight` 0..1 at its pixels."""
        for at in self._bands(weight):
            for under, over in ((self.hematoxylin, hematoxylin), (self.eosin, eosin)):
                difference = (over(at) if callable(over) else over) - under[at]
                difference *= weight[at]
                under[at] += difference

    def clear(self, weight: F32, fraction: Callable[[Band], F32] | None = None) -> None:
        """Remove tissue (lumens, clefts, glass), or a fraction of it."""
        for at in self._bands(weight):
            keep = 1 - (weight[at] if fraction is None else weight[at] * fraction(at))
            self.hematoxylin[at] *= keep
            self.eosin[at] *= keep

    def hide_nuclei(self, weight: F32, fraction: float = 1.0) -> None:
        """Remove stamped nuclei, or a fraction of them, by `weight` at the tile's pixels: 1 removes all."""
        for at in self._bands(weight):
            keep = 1 - np.float32(fraction) * weight[at]
            for channel in (0, 1):
                self.nuclei[(*at, channel)] *= keep

    def _bands(self, weight: F32) -> Iterator[Band]:
        """Area with a weight above zero, in bands of rows that fit into the processor's cache."""
        for top in range(0, self.height, BAND_PX):
            rows = slice(top, top + BAND_PX)
            columns = np.flatnonzero(weight[rows].any(0))
            if len(columns):
                yield rows, slice(int(columns[0]), int(columns[-1]) + 1)

    def seed_nuclei(
        self,
        kind: str,
        spacing_um: float,
        chance: F32,
        seed: int,
        *,
        along_fibers: bool = False,
        jitter: float = 0.3,
    ) -> None:
        """Stamp nuclei of a kind on a jittered lattice, each with probability `chance` (coarse raster)."""
        if not self.touches(chance):
            return
        y, x, u = scatter(self.bounds_um(HALO_UM), spacing_um, jitter, seed)
        keep = u[0] < self.coarse.sample(chance, y, x)
        y, x, random = y[keep], x[keep], u[1][keep]
        angle = None
        if along_fibers:
            angle = self.coarse.sample(self.fiber_direction(), y, x) + 0.3 * (u[2][keep] - 0.5)
        self.stamp(kind, y, x, random, angle)

    def coverage(self, kind: str, y_um: F32, x_um: F32, random: F32) -> F32:
        """Coverage 0..1 of stamps that are not nuclei (vacuoles, erythrocytes). Shape (height, width)."""
        mpp = self.world.mpp
        layer = np.zeros((self.height, self.width, 2), np.float32)
        sprites = self.world.library.choose(kind, random)
        stamp(layer, sprites, y_um / mpp - self.top_px, x_um / mpp - self.left_px)
        return layer[..., 1]

    def stamp(self, kind: str, y_um: F32, x_um: F32, random: F32, angle: F32 | None = None) -> None:
        """Stamp nuclei of a kind at given places."""
        mpp = self.world.mpp
        sprites = self.world.library.choose(kind, random, angle)
        stamp(self.nuclei, sprites, y_um / mpp - self.top_px, x_um / mpp - self.left_px)
