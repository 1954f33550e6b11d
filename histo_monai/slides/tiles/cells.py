"""Grid cells of a slide that hold tissue."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides import Slide, SlideError, tissue_fraction
from histo_monai.slides.tiles.grid import Grid
from histo_monai.slides.tiles.usable import TissueRules, usable_tissue
from histo_monai.utils.errors import InputError

_CELLS_AT_ONCE = 2**18


def slide_grid(slide: Slide, stride_um: float) -> Grid:
    """The grid of a slide.

    Raises:
        SlideError: The grid has too many cells.
    """
    try:
        return Grid(stride_um, slide.mpp, slide.size_yx, slide.bounds_yx)
    except InputError as error:
        raise SlideError(slide.path, str(error)) from None


def tissue_cells(
    slide: Slide, grid: Grid, rules: TissueRules, min_tissue_fraction: float, outlines: str = ""
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Cells with enough tissue, by exact area; area outside the slide counts as no tissue.

    Args:
        min_tissue_fraction: Least tissue fraction of a cell, 0..1; 0 still requires some tissue.
        outlines: GeoJSON file of the user's outlines; empty: none.

    Returns:
        Cells (row, column), shape (n, 2), int64, row after row, and their tissue fraction, shape (n,), float32, 0..1.

    Raises:
        InputError: `min_tissue_fraction` is out of range, or the file of outlines is invalid.
        SlideError: The slide is damaged.
    """
    if not 0 <= min_tissue_fraction <= 1:
        raise InputError(f"min_tissue_fraction: got {min_tissue_fraction}. Fix: pass a fraction in 0..1.")
    mask, mask_mpp, *_ = usable_tissue(slide, rules, outlines)
    rows, columns = grid.shape
    step = max(1, _CELLS_AT_ONCE // columns)
    parts = []
    for first in range(0, rows, step):
        cells = np.argwhere(np.ones((min(step, rows - first), columns), bool))
        cells[:, 0] += first
        centers = grid.centers_yx(cells) * slide.mpp / mask_mpp
        # The mask's last row and column reach beyond the slide, where there is no tissue.
        fraction = np.minimum(
            tissue_fraction(mask, centers, grid.stride_um / mask_mpp), _part_inside(grid, cells)
        )
        chosen = (fraction > 0) & (fraction >= min_tissue_fraction - 1e-9)
        parts.append((cells[chosen], fraction[chosen].astype(np.float32)))
    all_cells, all_fractions = (np.concatenate(column) for column in zip(*parts, strict=True))
    return all_cells, all_fractions


def _part_inside(grid: Grid, cells: NDArray[np.int64]) -> NDArray[np.float64]:
    """Fraction of each cell's area on the slide, 0..1."""
    return np.clip(np.array(grid.size_yx) / grid.downsample - cells, 0, 1).prod(axis=1)
