"""Painters of tissues; each paints over the previous ones on a tile."""

from __future__ import annotations

import numpy as np

from histo_monai.data.simulated.cells.structures import polygonal_cells
from histo_monai.data.simulated.raster.lattice import F32, ramp
from histo_monai.data.simulated.tissue.tile import Band, Tile


def paint_stroma(tile: Tile, weight: F32) -> None:
    """Collagen: wavy pink bundles with clefts and thin dark nuclei along them."""
    traits, seed = tile.world.traits, tile.world.seed
    full = tile.full(weight)
    fiber = tile.fibers(full)
    dense = 1 + 0.22 * tile.full(tile.noise(180, seed + 31, 2))
    tile.lay(
        full,
        lambda at: 0.05 + 0.015 * fiber[at],
        lambda at: traits.fiber_density * np.maximum(dense[at] + 0.17 * fiber[at], 0.1),
    )
    rough = tile.full(tile.noise(70, seed + 32))
    tile.clear(full, lambda at: ramp(fiber[at] + 0.5 * rough[at], -2.1, -2.9))
    crowd = ramp(tile.noise(140, seed + 33), -1.2, 2.2) * weight
    tile.seed_nuclei("fibroblast", 17, 0.75 * crowd, seed + 34, along_fibers=True)
    tile.seed_nuclei("lymphocyte", 15, 0.10 * crowd**2, seed + 35)


def paint_muscle(tile: Tile, weight: F32) -> None:
    """Smooth muscle: dense straight bundles, cigar-shaped nuclei in step with them."""
    seed = tile.world.seed
    full = tile.full(weight)
    fiber = tile.fibers(full, 2.2)
    dense = 1 + 0.12 * tile.full(tile.noise(110, seed + 41, 2))
    pink = tile.world.traits.fiber_density
    tile.lay(
        full,
        lambda at: 0.10 + 0.012 * fiber[at],
        lambda at: pink * (1.25 * dense[at] + 0.12 * fiber[at]),
    )
    split = tile.full(tile.noise(150, seed + 42))
    tile.clear(full, lambda at: ramp(np.abs(split[at]), 0.05, 0.01))
    tile.seed_nuclei("muscle", 17, 0.8 * weight, seed + 43, along_fibers=True)


def paint_fat(tile: Tile, weight: F32) -> None:
    """Fat: empty polygonal cells with thin walls and few nuclei on the walls."""
    seed = tile.world.seed
    bend = 4.5 * tile.noise(48, seed + 52), 4.5 * tile.noise(48, seed + 55)
    wall = polygonal_cells(tile.coarse, 74, seed + 51, bend, tile.wanted(weight))
    full = tile.full(weight)
    away, grain, uneven = tile.full(wall), tile.grain(17), tile.full(tile.noise(60, seed + 54))

    def shade(at: Band) -> F32:
        edge = np.exp(-(np.maximum(away[at] - 0.25, 0) ** 2) * np.float32(1.3))
        return np.asarray(edge * (1 + 0.25 * grain[at] + 0.3 * uneven[at]), dtype=np.float32)

    tile.lay(full, lambda at: 0.06 * shade(at), lambda at: 0.5 * shade(at))
    tile.seed_nuclei("fibroblast", 16, weight * 0.22 * ramp(wall, 4, 1), seed + 53, along_fibers=True)


def paint_lymphoid(tile: Tile, weight: F32) -> None:
    """Lymphoid tissue: sheets of small dark nuclei; follicles, sinuses and shrinkage clefts."""
    traits, seed = tile.world.traits, tile.world.seed
    none = np.zeros_like(weight)
    follicle, germinal, sinus = (tile.regions.get(n, none) for n in ("follicle", "germinal", "sinus"))
    sinus = sinus * (1 - follicle)
    full, grain = tile.full(weight), tile.grain(5)
    mottle = tile.full(tile.noise(90, seed + 61, 3))
    loose = tile.full(sinus)
    tile.lay(
        full,
        lambda at: np.maximum(0.16 + 0.05 * mottle[at] + 0.05 * grain[at] - 0.07 * loose[at], 0.02),
        lambda at: np.maximum(0.30 + 0.05 * mottle[at] + 0.06 * grain[at] - 0.08 * loose[at], 0.03),
    )
    cleft = (
        np.abs(tile.noise(46, seed + 62, 2))
        + 0.9 * ramp(tile.noise(260, seed + 63), 1.2, -0.4)
        - 0.16 * sinus
    )
    cracks = tile.full(ramp(cleft, 0.03 + 0.09 * traits.cracks, 0.01) * (1 - germinal))
    tile.clear(full, lambda at: cracks[at])
    pale = tile.noise(150, seed + 64, 2)
    chance = weight * (1 - sinus) * np.clip(0.78 + 0.10 * pale + 0.3 * follicle, 0, 1)
    tile.seed_nuclei("lymphocyte", traits.lymphoid_cell_um, chance * (1 - 0.85 * germinal), seed + 65)
    tile.seed_nuclei("lymphocyte", 12, 0.45 * weight * sinus, seed + 66)
    tile.seed_nuclei("blast", 10.2, 0.85 * weight * germinal, seed + 67)
    tile.seed_nuclei("histiocyte", 21, weight * (0.20 + 0.55 * sinus) * (1 - germinal), seed + 68)
    tile.seed_nuclei("plasma", 24, 0.5 * weight * ramp(pale, -0.2, -1.2), seed + 69)


def paint_mucus(tile: Tile, weight: F32) -> None:
    """Mucus: pale bluish pools with streaks and few cells."""
    seed = tile.world.seed
    full = tile.full(weight)
    streak, grain = tile.fibers(full, 1.6), tile.grain(13)
    pool = tile.full(tile.noise(120, seed + 71, 3))

    def density(at: Band) -> F32:
        return np.maximum(0.11 + 0.045 * pool[at] + 0.014 * streak[at] + 0.01 * grain[at], 0)

    tile.lay(full, density, lambda at: 0.35 * density(at) + 0.01 * np.maximum(streak[at], 0))
    tile.clear(full, lambda at: ramp(pool[at] + 0.15 * streak[at], -1.0, -2.4))
    tile.seed_nuclei("lymphocyte", 34, 0.35 * weight * ramp(tile.noise(130, seed + 72), 0, 1.5), seed + 73)
    tile.seed_nuclei("fragment", 30, 0.35 * weight, seed + 74)


def paint_debris(tile: Tile, weight: F32) -> None:
    """Necrosis: granular pink to purple matter, ghosts and fragments of nuclei."""
    seed = tile.world.seed
    full = tile.full(weight)
    lump = tile.full(tile.noise(28, seed + 81, 3))
    grain, fine = tile.grain(9), tile.grain(311)
    tile.lay(
        full,
        lambda at: np.maximum(0.16 + 0.08 * lump[at] + 0.07 * grain[at], 0.02),
        lambda at: np.maximum(0.50 + 0.16 * lump[at] + 0.13 * fine[at], 0.05),
    )
    tile.clear(full, lambda at: ramp(lump[at] + 0.35 * grain[at], -1.5, -2.2))
    crowd = ramp(tile.noise(75, seed + 82, 2), -0.6, 1.4)
    tile.seed_nuclei("fragment", 7.5, 0.75 * weight * crowd, seed + 83)
    tile.seed_nuclei("histiocyte", 19, 0.4 * weight, seed + 84)
    tile.seed_nuclei("plasma", 18, 0.4 * weight * crowd, seed + 85)


def paint_infiltrate(tile: Tile, weight: F32) -> None:
    """Lymphocytes and plasma cells in any tissue."""
    seed, spacing = tile.world.seed, tile.world.traits.lymphoid_cell_um
    tile.seed_nuclei("lymphocyte", spacing + 0.8, 0.8 * weight, seed + 91)
    tile.seed_nuclei("plasma", 17, 0.4 * weight, seed + 92)
