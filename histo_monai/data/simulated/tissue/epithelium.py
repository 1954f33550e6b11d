"""Painters of structures with a wall or an outline: carcinoma, crypts, lobules, ducts and vessels."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from scipy.special import ndtri

from histo_monai.data.simulated.cells.structures import (
    FAR_UM,
    RingKind,
    Rings,
    depth_maps,
    find_rings,
    wall_nuclei,
)
from histo_monai.data.simulated.raster.lattice import F32, derive, ramp, scatter
from histo_monai.data.simulated.tissue.tile import HALO_UM, MARGIN_UM, Band, Tile

CRYPT = RingKind(
    spacing_um=88,
    radius_um=(31, 39),
    wall_um=(21, 25),
    irregular=0.07,
    oval=1.3,
    pitch_um=5.2,
    rows=1.0,
    jitter=0.12,
)
ACINUS = RingKind(
    spacing_um=36, radius_um=(11, 18), wall_um=(7.5, 10), irregular=0.12, oval=1.4, pitch_um=5.6, rows=1.25
)
DUCT = RingKind(
    spacing_um=330, radius_um=(32, 75), wall_um=(10, 14), irregular=0.20, oval=1.7, pitch_um=5.4, rows=1.6
)
VESSEL = RingKind(
    spacing_um=190, radius_um=(8, 27), wall_um=(2.5, 8), irregular=0.22, oval=1.9, pitch_um=11, rows=0.8
)


def paint_vessels(tile: Tile, weight: F32) -> None:
    """Small vessels: a pink wall, flat nuclei along it, blood inside some."""
    seed = derive(tile.world.seed, "vessel")
    rings = _rings(tile, VESSEL, weight, 0.75, seed)
    depth, lumen = depth_maps(rings, tile.coarse, tile.within())
    if not tile.touches(depth):
        return
    inside, grain = tile.full(ramp(depth, -1, 1)), tile.grain(3)
    tile.hide_nuclei(inside, 0.999)
    tile.lay(inside, 0.10, lambda at: 0.62 + 0.06 * grain[at])
    tile.clear(tile.full(ramp(lumen, -1, 1)))
    y, x, angle, random = wall_nuclei(rings, VESSEL, 2.0, seed)
    tile.stamp("fibroblast", y, x, random, angle + np.float32(np.pi / 2))
    y, x, u = scatter(tile.bounds_um(HALO_UM), 6.3, 0.3, seed + 1)
    filled = ramp(tile.noise(150, seed + 2), 0.2, 0.8)
    keep = (u[0] < 0.85 * tile.coarse.sample(filled, y, x)) & (tile.coarse.sample(lumen, y, x) > 1.5)
    if keep.any():
        tile.lay(tile.coverage("erythrocyte", y[keep], x[keep], u[1][keep]), 0.02, 1.15)


def paint_mucosa(tile: Tile, weight: F32) -> None:
    """Normal large bowel: straight crypts cut across, goblet cells, nuclei in one basal row."""
    seed = derive(tile.world.seed, "crypt")
    rings = _rings(tile, CRYPT, weight, 0.96, seed)
    depth, lumen = depth_maps(rings, tile.coarse, tile.within())
    between = weight * ramp(depth, 0, -4)
    tile.seed_nuclei("lymphocyte", 11, 0.32 * between, seed + 1)
    tile.seed_nuclei("plasma", 12, 0.50 * between, seed + 2)
    tile.seed_nuclei("fibroblast", 17, 0.30 * between, seed + 3)
    inside, blue, pink = tile.full(ramp(depth, -1, 1)), tile.grain(21), tile.grain(22)
    tile.lay(inside, lambda at: 0.20 + 0.03 * blue[at], lambda at: 0.40 + 0.05 * pink[at])
    y, x, u = scatter(tile.bounds_um(HALO_UM), 9.0, 0.2, seed + 4)
    deep = tile.coarse.sample(depth, y, x)
    keep = (deep > 10) & (tile.coarse.sample(lumen, y, x) < -2) & (u[0] < 0.82)
    if keep.any():
        goblets = tile.coverage("goblet", y[keep], x[keep], u[1][keep])
        mucin = tile.grain(23)
        tile.lay(0.92 * goblets, lambda at: 0.07 + 0.02 * mucin[at], 0.05)
    tile.clear(tile.full(ramp(lumen, -1, 1)))
    y, x, angle, random = wall_nuclei(rings, CRYPT, 5.0, seed)
    tile.stamp("epithelium", y, x, random, angle)


def paint_lobules(tile: Tile, weight: F32, kind: RingKind = ACINUS) -> None:
    """Benign breast glands: clusters of small acini, or ducts, with an even double row of nuclei."""
    seed = derive(tile.world.seed, "lobule", int(kind.spacing_um))
    rings = _rings(tile, kind, weight, 0.95 if kind is ACINUS else 0.8, seed)
    depth, lumen = depth_maps(rings, tile.coarse, tile.within())
    if not tile.touches(depth):
        return
    inside, blue, pink = tile.full(ramp(depth, -1, 1)), tile.grain(31), tile.grain(32)
    tile.hide_nuclei(inside)
    tile.lay(inside, lambda at: 0.20 + 0.03 * blue[at], lambda at: 0.42 + 0.05 * pink[at])
    tile.clear(tile.full(ramp(lumen, -1, 1)))
    y, x, angle, random = wall_nuclei(rings, kind, 3.6, seed)
    tile.stamp("epithelium", y, x, random, angle)


def paint_carcinoma(tile: Tile, weight: F32, depth_um: F32) -> None:
    """Carcinoma: solid nests and irregular glands of large, uneven, vesicular nuclei; marks `tile.malignant`.

    Args:
        weight: The malignant region on the coarse raster; its stroma is already painted.
        depth_um: Distance inside the region's outline, µm; negative outside, where nothing malignant is painted.
    """
    traits, seed = tile.world.traits, derive(tile.world.seed, "tumour")
    quantile = NormalDist().inv_cdf(min(max(traits.glandular, 0.02), 0.98))
    glandular = ramp(tile.noise(420, seed + 1), -quantile + 0.15, -quantile - 0.15)
    glandular = 1 - glandular
    nests = _nests(tile, glandular, depth_um, seed)
    kind = _tumor_gland(tile)
    rings = find_rings(
        kind,
        tile.bounds_um(MARGIN_UM - 4),
        lambda y, x, r: np.where(
            (tile.coarse.sample(depth_um, y, x) > 0.75 * r) & (tile.coarse.sample(glandular, y, x) > 0.5),
            0.95,
            0,
        ),
        seed + 2,
    )
    ring_depth, lumen = depth_maps(rings, tile.coarse, tile.within())
    ring_depth = np.where(depth_um > 0, ring_depth, FAR_UM)
    nests = np.where(ring_depth > -8, FAR_UM, nests)
    inside = np.maximum(nests, ring_depth)
    if not tile.touches(inside):
        return
    epithelium, hollow = (
        tile.full(ramp(inside, -1, 1)),
        tile.full(ramp(lumen, -1, 1) * ramp(ring_depth, 0, 1)),
    )
    cleft = (
        ramp(nests, -9, -5)
        * ramp(nests, 0, -2)
        * ramp(tile.noise(110, seed + 3), 1.4 - 2 * traits.retraction, 1.6)
    )
    gap = tile.full(cleft)
    tile.clear(gap)
    tile.hide_nuclei(np.maximum(epithelium, gap))
    eosin, hematoxylin = traits.cytoplasm
    uneven, grain = tile.full(tile.noise(60, seed + 4, 3)), tile.grain(41)

    def mottle(at: Band) -> F32:
        return 1 + 0.14 * uneven[at] + 0.12 * grain[at]

    tile.lay(
        epithelium,
        lambda at: np.maximum(hematoxylin * mottle(at), 0.02),
        lambda at: np.maximum(eosin * mottle(at), 0.05),
    )
    tile.clear(hollow)
    tile.malignant |= (epithelium > 0.5) & (hollow <= 0.5)
    tile.seed_nuclei("tumour", traits.tumor_cell_um, 0.95 * ramp(nests, 3, 5), seed + 5, jitter=0.24)
    tile.seed_nuclei("fragment", 22, 0.2 * ramp(inside, 3, 5) * ramp(lumen, 0, -2), seed + 6)
    y, x, angle, random = wall_nuclei(rings, kind, 6.0, seed)
    # A gland that overlaps another removes nuclei from its lumen.
    keep = (tile.coarse.sample(depth_um, y, x) > 3) & (tile.coarse.sample(lumen, y, x) < 2.5)
    tile.stamp("tumour", y[keep], x[keep], random[keep], angle[keep])


def _tumor_gland(tile: Tile) -> RingKind:
    size = tile.world.traits.tumor_size
    return RingKind(
        spacing_um=104,
        radius_um=(26, 60),
        wall_um=(15 * size, 30 * size),
        irregular=0.24,
        oval=1.8,
        pitch_um=0.62 * tile.world.traits.tumor_cell_um,
        rows=1.9,
        jitter=0.34,
    )


def _nests(tile: Tile, glandular: F32, depth_um: F32, seed: int) -> F32:
    """Depth inside solid nests, µm, from a thresholded field whose slope is about 1 per 0.3 nest widths."""
    traits = tile.world.traits
    fill = np.clip(traits.nest_fill + 0.14 * tile.noise(700, seed + 8), 0.15, 0.985)
    field = (tile.noise(traits.nest_um, seed + 7, 2) + ndtri(fill).astype(np.float32)) * np.float32(
        0.30 * traits.nest_um
    )
    nests = np.minimum(field, depth_um - 2) - 60 * ramp(glandular, 0.2, 0.6)
    return np.asarray(nests, dtype=np.float32)


def _rings(tile: Tile, kind: RingKind, weight: F32, chance: float, seed: int) -> Rings:
    return find_rings(
        kind,
        tile.bounds_um(MARGIN_UM - 4),
        lambda y, x, r: np.where(tile.coarse.sample(weight, y, x) > 0.6, chance, 0),
        seed,
    )
