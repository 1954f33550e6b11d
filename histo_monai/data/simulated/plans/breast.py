"""The plan of breast tissue: fibrous stroma and fat, lobules and ducts, carcinoma that invades them."""

from __future__ import annotations

import numpy as np

from histo_monai.data.simulated.raster.lattice import F32, Grid, derive, fractal, noise, ramp
from histo_monai.data.simulated.tissue.world import Regions


class Breast:
    """A patient's breast tissue, unbounded or cut to a slide.

    Args:
        seed: Seed of all random decisions.
        size_um: Height and width of a slide with torn edges and glass around the tissue; None: unbounded tissue.
    """

    def __init__(self, seed: int, size_um: tuple[float, float] | None = None) -> None:
        rng = np.random.default_rng(derive(seed, "breast"))
        self.seed, self.size_um = seed, size_um
        self.tumor, self.fat = float(rng.uniform(-0.25, 0.45)), float(rng.uniform(-1.2, 0.2))
        self.lobules, self.immune = float(rng.uniform(0.5, 1.4)), float(rng.uniform(0.1, 1.1))

    def regions(self, grid: Grid) -> Regions:
        """Tissue weights (`world.Plan`)."""
        seed = self.seed
        depth = 170 * (fractal(grid, 560, seed + 111, 3) + np.float32(self.tumor))
        tumor = ramp(depth, -5, 5)
        out: Regions = {"lesion_depth": depth, "tumour": tumor}
        fatty = fractal(grid, 380, seed + 112, 3) + np.float32(self.fat) - 0.012 * np.maximum(depth + 40, 0)
        out["fat"] = ramp(fatty, 0.35, 0.37)
        out["stroma"] = 1 - out["fat"]
        benign = (
            fractal(grid, 340, seed + 113, 2)
            - 0.02 * np.maximum(depth + 25, 0)
            + np.float32(self.lobules - 1)
        )
        out["lobule"] = ramp(benign, 0.72, 0.80) * (1 - out["fat"])
        out["duct"] = ramp(benign, -0.9, -0.8) * ramp(benign, 0.4, 0.3) * (1 - out["fat"]) * (1 - tumor)
        swarm = noise(grid, 240, seed + 114) + np.float32(self.immune - 1)
        out["infiltrate"] = 0.9 * ramp(swarm, 0.35, 1.2) * (1 - out["fat"])
        out["vessels"] = out["stroma"] * (1 - tumor) * (1 - out["lobule"])
        # Lymphoid aggregates are as dark as tumor and do not touch it.
        dense = (
            noise(grid, 330, seed + 121) + np.float32(self.immune - 1.1) - 0.02 * np.maximum(depth + 40, 0)
        )
        out["lymphoid"] = ramp(dense.astype(np.float32), 0.45, 0.6) * (1 - out["fat"]) * (1 - out["lobule"])
        out["stroma"] = out["stroma"] * (1 - out["lymphoid"])
        out["debris"] = ramp(noise(grid, 420, seed + 115), 1.75, 1.85) * ramp(depth, 60, 70)
        out["lesion_depth"] = np.where(out["debris"] > 0.4, -5, depth)
        if self.size_um is not None:
            out["glass"] = self._glass(grid)
        return out

    def _glass(self, grid: Grid) -> F32:
        height, width = self.size_um or (1.0, 1.0)
        v = (grid.rows_um()[:, None] / np.float32(height) - 0.5) / 0.46
        u = (grid.columns_um()[None, :] / np.float32(width) - 0.5) / 0.46
        mean = 0.46 * 0.5 * (height + width)
        edge = (1 - (np.abs(u) ** 3.2 + np.abs(v) ** 3.2) ** (1 / 3.2)) * np.float32(mean)
        edge = (
            edge
            + 0.07 * mean * fractal(grid, 0.5 * mean, self.seed + 116, 4)
            + 6 * noise(grid, 24, self.seed + 117)
        )
        tear = np.abs(noise(grid, 0.8 * mean, self.seed + 118)) * np.float32(0.5 * mean) + 5 * noise(
            grid, 35, self.seed + 119
        )
        split = ramp(tear, 16, 10) * ramp(noise(grid, 700, self.seed + 120), 0.1, 0.3)
        return np.maximum(ramp(edge.astype(np.float32), 4, -4), split)
