"""Boxes of regular patches over a slide's tissue."""

from __future__ import annotations

from histo_monai.slides import Box, Slide
from histo_monai.slides.tiles.cells import slide_grid, tissue_cells
from histo_monai.slides.tiles.usable import TissueRules


def tile(
    slide: Slide,
    side_px: int,
    mpp: float,
    *,
    stride_um: float | None = None,
    tissue_mpp: float = 16.0,
    min_tissue_fraction: float = 0.5,
) -> list[Box]:
    """Boxes on a regular grid over the tissue of a slide, row after row.

    The grid begins at the slide's upper left corner; each box lies in the middle of its cell. The commands `map` and
    `features` use the same grid.

    Args:
        side_px: Side of a patch, px.
        mpp: Resolution of the patches, µm/px.
        stride_um: Distance between neighboring boxes, µm; None: boxes side by side.
        tissue_mpp: Resolution of the tissue mask, µm/px.
        min_tissue_fraction: Least tissue in a cell of side `stride_um`, 0..1; 0 still requires some tissue.

    Raises:
        InputError: A number is out of range.
        SlideError: The slide is damaged, or coarser than `mpp` by more than 10 %, or the grid has too many cells.
    """
    slide.level_for(mpp)
    grid = slide_grid(slide, side_px * mpp if stride_um is None else stride_um)
    cells, _ = tissue_cells(slide, grid, TissueRules(tissue_mpp), min_tissue_fraction)
    return [Box((float(y), float(x)), side_px, mpp) for y, x in grid.centers_yx(cells)]
