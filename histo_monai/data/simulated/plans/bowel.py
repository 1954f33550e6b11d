"""The plan of colorectal patches: nine tissue classes, each in its own band of the plane."""

from __future__ import annotations

import numpy as np

from histo_monai.data.simulated.raster.lattice import F32, Grid, derive, hash_cells, noise, ramp
from histo_monai.data.simulated.tissue.world import Regions

CLASSES = ("ADI", "BACK", "DEB", "LYM", "MUC", "MUS", "NORM", "STR", "TUM")
BAND_UM = 1200.0  # Patches lie in the middle of cells of this pitch: column = class, row = patch.
TISSUE = {
    "ADI": "fat",
    "BACK": "glass",
    "DEB": "debris",
    "LYM": "lymphoid",
    "MUC": "mucus",
    "MUS": "muscle",
    "NORM": "mucosa",
    "STR": "stroma",
    "TUM": "tumour",
}
# Tissue that may reach into a corner of a patch of each class.
NEIGHBORS = {
    "ADI": ("stroma",),
    "BACK": ("debris",),
    "DEB": ("stroma", "tumour"),
    "LYM": ("stroma", "fat"),
    "MUC": ("stroma", "tumour"),
    "MUS": ("stroma", "fat"),
    "NORM": ("stroma",),
    "STR": ("muscle", "infiltrate", "fat"),
    "TUM": ("stroma", "debris"),
}


def patch_center_um(label: str, index: int) -> tuple[float, float]:
    """Center (y, x) of patch `index` of a class."""
    return (index + 0.5) * BAND_UM, (CLASSES.index(label) + 0.5) * BAND_UM


class Bowel:
    """One patient's large bowel, arranged as an atlas: each band holds one tissue.

    Args:
        seed: Seed of all random decisions.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def regions(self, grid: Grid) -> Regions:
        """Tissue weights (`world.Plan`); the whole raster counts to the cell of its center."""
        row = int((grid.y_um + 0.5 * grid.height * grid.step_um) // BAND_UM)
        column = int((grid.x_um + 0.5 * grid.width * grid.step_um) // BAND_UM)
        label = CLASSES[column % len(CLASSES)]
        bits = int(hash_cells(derive(self.seed, "corner"), np.array([row]), np.array([column]))[0])
        corner = self._corner(grid, row, column, bits)
        out: Regions = {TISSUE[label]: 1 - corner}
        neighbor = NEIGHBORS[label][bits % len(NEIGHBORS[label])]
        out[neighbor] = np.maximum(out.get(neighbor, 0 * corner), corner)
        if label == "BACK":
            smear = 0.12 * ramp(noise(grid, 140, self.seed + 101), 1.0, 2.4)
            out["glass"], out["debris"] = 1 - np.maximum(smear, 0.8 * corner), np.ones_like(corner)
        if label == "LYM":
            out["follicle"] = ramp(noise(grid, 260, self.seed + 102), 0.3, 0.5) * (1 - corner)
            out["germinal"] = ramp(noise(grid, 260, self.seed + 102), 1.2, 1.4) * (1 - corner)
        if label == "STR":
            out["infiltrate"] = np.maximum(
                out.get("infiltrate", 0 * corner), 0.5 * ramp(noise(grid, 170, self.seed + 103), 0.7, 2)
            )
        if "stroma" in out:
            out["vessels"] = out["stroma"]
        if "tumour" in out:
            out["lesion_depth"] = (out["tumour"] - np.float32(0.5)) * 60 + 400 * (out["tumour"] > 0.99)
        return out

    def _corner(self, grid: Grid, row: int, column: int, bits: int) -> F32:
        """Weight of the neighboring tissue: in two of five patches a strip of up to a quarter, else 0."""
        angle = (bits >> 8 & 0xFF) / 256 * 2 * np.pi
        away = 34 + (bits >> 16 & 0xFF) / 256 * 30 if (bits >> 24) % 5 < 2 else 1e4
        y = grid.rows_um()[:, None] - np.float32((row + 0.5) * BAND_UM)
        x = grid.columns_um()[None, :] - np.float32((column + 0.5) * BAND_UM)
        distance = x * np.float32(np.cos(angle)) + y * np.float32(np.sin(angle)) - np.float32(away)
        return ramp(distance + 6 * noise(grid, 50, self.seed + 104), -2, 2)
