"""Render any window of a world; windows of one world fit together without seams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from histo_monai.data.simulated.raster.lattice import F32, ramp
from histo_monai.data.simulated.tissue import epithelium, painters
from histo_monai.data.simulated.tissue.tile import HALO_UM, Tile
from histo_monai.data.simulated.tissue.world import World

BLOCK_PX = 1024


@dataclass(frozen=True)
class Rendering:
    """A window of a world.

    Attributes:
        image: RGB, shape (height, width, 3), uint8.
        malignant: Mask of painted malignant epithelium without lumens, shape (height, width), bool.
    """

    image: NDArray[np.uint8]
    malignant: NDArray[np.bool_]


def render(world: World, top_px: int, left_px: int, height: int, width: int) -> Rendering:
    """Render the window whose top left pixel is (top_px, left_px), in pixels of `world.mpp`.

    Args:
        top_px: First row; may be negative, the plane has no border.
    """
    k = world.coarse_px
    halo = int(np.ceil(HALO_UM / world.mpp))
    # The window grows to whole cells of the 2 µm raster, so that all windows use equal samples.
    first_row, first_column = (top_px - halo) // k * k, (left_px - halo) // k * k
    last_row, last_column = -(-(top_px + height + halo) // k) * k, -(-(left_px + width + halo) // k) * k
    tile = Tile(world, first_row, first_column, last_row - first_row, last_column - first_column)
    paint(tile)
    image = world.scanner.expose(tile.hematoxylin, tile.eosin, first_row, first_column)
    rows = slice(top_px - first_row, top_px - first_row + height)
    columns = slice(left_px - first_column, left_px - first_column + width)
    return Rendering(
        np.ascontiguousarray(image[rows, columns]), np.ascontiguousarray(tile.malignant[rows, columns])
    )


def render_strips(world: World, height: int, width: int) -> Iterator[NDArray[np.uint8]]:
    """The slide from top to bottom in strips of `BLOCK_PX` rows, each (rows, width, 3) uint8."""
    for top in range(0, height, BLOCK_PX):
        rows = min(BLOCK_PX, height - top)
        strip = np.empty((rows, width, 3), np.uint8)
        for left in range(0, width, BLOCK_PX):
            columns = min(BLOCK_PX, width - left)
            strip[:, left : left + columns] = render(world, top, left, rows, columns).image
        yield strip


def paint(tile: Tile) -> None:
    """Paint all tissues on a tile, from the ground up, then its nuclei."""
    tumor, mucosa, lobule = (tile.region(n) for n in ("tumour", "mucosa", "lobule"))
    lymphoid, ground = tile.region("lymphoid"), tile.region("stroma")
    matrix = tumor
    if lymphoid is not None and tumor is not None:
        fibrous = ramp(tile.noise(210, tile.world.seed + 2, 2), *_step(tile.world.traits.desmoplasia))
        matrix = tumor * fibrous
        lymphoid = lymphoid * (1 - matrix)
    for over in (matrix, mucosa, lobule):
        if over is not None:
            ground = over if ground is None else np.maximum(ground, over)
    for name in ("fat", "mucus", "debris", "glass"):  # These replace the tissue beneath, with its nuclei.
        other = tile.region(name)
        if other is not None:
            ground = None if ground is None else ground * (1 - other)
            lymphoid = None if lymphoid is None else lymphoid * (1 - other)
    _paint(tile, painters.paint_lymphoid, lymphoid)
    _paint(tile, painters.paint_stroma, ground)
    for name, painter in (
        ("muscle", painters.paint_muscle),
        ("fat", painters.paint_fat),
        ("mucus", painters.paint_mucus),
        ("debris", painters.paint_debris),
    ):
        _paint(tile, painter, tile.region(name))
    _paint(tile, painters.paint_infiltrate, tile.region("infiltrate"))
    _paint(tile, epithelium.paint_vessels, tile.region("vessels"))
    _paint(tile, epithelium.paint_mucosa, mucosa)
    _paint(tile, epithelium.paint_lobules, lobule)
    duct = tile.region("duct")
    if duct is not None and tile.touches(duct):
        epithelium.paint_lobules(tile, duct, epithelium.DUCT)
    if tumor is not None and tile.touches(tumor):
        epithelium.paint_carcinoma(tile, tumor, tile.regions["lesion_depth"])
    cover = tile.nuclei[..., 1]
    tile.lay(cover, 0.0, lambda at: 0.45 * tile.eosin[at])
    tile.hematoxylin += tile.nuclei[..., 0]
    glass = tile.region("glass")
    if glass is not None and tile.touches(glass):
        tile.clear(tile.full(glass))


def _step(fraction: float) -> tuple[float, float]:
    """Bounds of a ramp that a unit normal field exceeds in this fraction of the area."""
    level = NormalDist().inv_cdf(1 - fraction)
    return level - 0.06, level + 0.06


def _paint(tile: Tile, painter: Callable[[Tile, F32], None], weight: F32 | None) -> None:
    if weight is not None and tile.touches(weight):
        painter(tile, weight)
