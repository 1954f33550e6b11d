"""The plan of a sentinel lymph node: capsule, sinuses, follicles, fat around it, metastases in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from histo_monai.data.simulated.cells.structures import RingKind, depth_maps, find_rings
from histo_monai.data.simulated.plans.lesions import DepthMap, Lesion, star_outline
from histo_monai.data.simulated.raster.lattice import F32, Grid, derive, fractal, noise, ramp
from histo_monai.data.simulated.tissue.world import Regions
from histo_monai.slides.annotations.overlaps import overlaps

FOLLICLES = RingKind(
    spacing_um=420, radius_um=(90, 190), wall_um=(24, 48), irregular=0.12, oval=1.5, pitch_um=10, rows=1
)


class LymphNode:
    """A node of the slide's size with fat and glass around it.

    Args:
        seed: Seed of shape and tissue.
        size_um: Height and width of the slide.
        lesions: Metastases, from `random_metastases`.
    """

    def __init__(self, seed: int, size_um: tuple[float, float], lesions: Sequence[Lesion] = ()) -> None:
        rng = np.random.default_rng(derive(seed, "node"))
        self.seed, self.size_um, self.lesions = seed, size_um, tuple(lesions)
        self.center_um = tuple(s * rng.uniform(0.46, 0.54) for s in size_um)
        self.radius_um = tuple(s * rng.uniform(0.38, 0.47) for s in size_um)
        self.turn = rng.uniform(-0.5, 0.5)
        self.fat_um = float(rng.uniform(0.06, 0.28) * min(size_um))
        self.follicles, self.medulla = float(rng.uniform(0.25, 0.95)), float(rng.uniform(-0.4, 0.9))
        self._lesion_depth = DepthMap(lesions, size_um) if lesions else None

    def node_depth(self, grid: Grid) -> F32:
        """Approximate distance from the capsule, µm, positive inside; shape of the grid, float32."""
        dy = grid.rows_um()[:, None] - self.center_um[0]
        dx = grid.columns_um()[None, :] - self.center_um[1]
        u = (dx * np.cos(self.turn) + dy * np.sin(self.turn)) / self.radius_um[1]
        v = (dy * np.cos(self.turn) - dx * np.sin(self.turn)) / self.radius_um[0]
        mean = 0.5 * sum(self.radius_um)
        lumps = 0.10 * mean * fractal(grid, 0.9 * mean, self.seed + 21, 3)
        return np.asarray((1 - np.sqrt(u * u + v * v)) * mean + lumps, dtype=np.float32)

    def regions(self, grid: Grid) -> Regions:
        """Tissue weights (`world.Plan`)."""
        seed, depth = self.seed, self.node_depth(grid)
        rough = depth + 5 * noise(grid, 26, seed + 22)
        reach = self.fat_um * (1 + 0.5 * noise(grid, 420, seed + 23)) + 8 * noise(grid, 30, seed + 24)
        out: Regions = {"lymphoid": ramp(rough, 22, 30), "glass": ramp(rough + reach, 4, -4)}
        out["fat"] = ramp(rough, 0, -8) * (1 - out["glass"])
        septum = np.abs(noise(grid, 300, seed + 25)) + np.float32(0.004) * np.maximum(depth - 140, 0)
        out["stroma"] = np.maximum(ramp(rough, -6, 2) * ramp(rough, 30, 22), ramp(septum, 0.075, 0.045))
        out["stroma"] *= ramp(rough, -8, 0)
        winding = np.abs(fractal(grid, 170, seed + 26, 2))
        winding += np.float32(0.5) * ramp(noise(grid, 620, seed + 27), self.medulla + 0.3, self.medulla - 0.3)
        below_capsule = ramp(rough, 30, 34) * ramp(rough + 9 * noise(grid, 120, seed + 28), 58, 52)
        out["sinus"] = (
            np.maximum(ramp(winding, 0.24, 0.15), below_capsule) * (1 - out["stroma"]) * out["lymphoid"]
        )
        out["follicle"], out["germinal"] = self._follicles(grid)
        out["vessels"] = np.maximum(
            out["stroma"], 0.7 * ramp(noise(grid, 500, seed + 29), 0, 0.5) * out["lymphoid"]
        )
        self._capsule(grid, depth, out)
        if self._lesion_depth is not None:
            out["lesion_depth"] = self._lesion_depth.at(grid)
            out["tumour"] = ramp(out["lesion_depth"], -5, 5)
            for name in ("fat", "glass", "sinus", "follicle", "germinal", "vessels"):
                out[name] = out[name] * (1 - out["tumour"])
        return out

    def _capsule(self, grid: Grid, depth: F32, out: Regions) -> None:
        """Coordinates of the capsule's fibers: along the contour and across it, µm."""
        dy = grid.rows_um()[:, None] - np.float32(self.center_um[0])
        dx = grid.columns_um()[None, :] - np.float32(self.center_um[1])
        out["capsule"] = ramp(depth, 58, 57)
        out["capsule_across"] = depth
        out["capsule_along"] = np.arctan2(dy, dx) * np.float32(sum(self.radius_um) / 2)

    def _follicles(self, grid: Grid) -> tuple[F32, F32]:
        rows, columns, reach, step = grid.rows_um(), grid.columns_um(), 304.0, 8.0
        # A wider, coarser grid with samples at fixed places of the slide decides on centers outside the grid, so
        # that every tile accepts equal follicles.
        top, left = (float(np.floor((a[0] - reach) / step)) * step for a in (rows, columns))
        bottom, right = float(rows[-1]) + reach, float(columns[-1]) + reach
        bounds = (top, left, bottom, right)
        wide = Grid(top, left, step, int((bottom - top) / step) + 1, int((right - left) / step) + 1)
        far = self.node_depth(wide)

        def judged(y: F32, x: F32, radius: F32) -> F32:
            inside = wide.sample(far, y, x)
            return np.where((inside > 1.15 * radius + 40) & (inside < 900), self.follicles, 0)

        outer, center = depth_maps(find_rings(FOLLICLES, bounds, judged, derive(self.seed, "follicle")), grid)
        return ramp(outer, -8, 8), ramp(center, -8, 8)


def random_metastases(
    node: LymphNode, rng: np.random.Generator, diameters_um: Sequence[float], hole: bool
) -> list[Lesion]:
    """Outlines of metastases inside a node, mostly separate, and never in the hole of another.

    Args:
        diameters_um: Mean diameter of each; outlines without a free place are omitted, except the first.
        hole: Whether the first metastasis has a hole of normal tissue.
    """
    step = 16.0
    height, width = (int(s / step) for s in node.size_um)
    depth = node.node_depth(Grid(0.0, 0.0, step, height, width))
    lesions: list[Lesion] = []
    free = depth.copy()
    for index, diameter in enumerate(diameters_um):
        radius = 0.5 * diameter
        room = free > (0.35 * radius + 30 if index == 0 else 1.1 * radius)
        if not room.any():
            if index:
                continue
            room = free >= free.max()
        row, column = (a[rng.integers(int(room.sum()))] for a in np.nonzero(room))
        center = ((row + 0.5) * step, (column + 0.5) * step)
        exterior = star_outline(rng, center, radius)
        exterior = np.clip(exterior, 2 * step, np.array(node.size_um) - 2 * step)
        holes: tuple[np.ndarray, ...] = ()
        if hole and index == 0:
            holes = (star_outline(rng, center, 0.22 * radius),)
        # Row and column are random and independent, so their crossing may be occupied.
        if any(overlaps([island for lesion in lesions for island in lesion.holes], [exterior])):
            continue
        lesions.append(Lesion(exterior, holes))
        yy = (np.arange(height) + 0.5)[:, None] * step - center[0]
        xx = (np.arange(width) + 0.5)[None, :] * step - center[1]
        free = np.minimum(free, np.sqrt(yy * yy + xx * xx) - 1.6 * radius)
    return lesions
