from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile

from histo_monai.slides import Slide, open_slide, tissue_mask
from histo_monai.slides.tiles import cells as cells_module
from histo_monai.slides.tiles.cells import tissue_cells
from histo_monai.slides.tiles.grid import Grid
from histo_monai.slides.tiles.usable import TissueRules

GLASS, TISSUE = (245, 245, 245), (200, 120, 170)


@pytest.fixture
def slide(tmp_path: Path) -> Slide:
    """1 µm/px, 328 x 512 px, a rectangle of tissue that the lower edge cuts."""
    image = np.full((328, 512, 3), GLASS, np.uint8)
    image[48:328, 100:400] = TISSUE
    tifffile.imwrite(tmp_path / "slide.tif", image, tile=(64, 64), photometric="rgb")
    return open_slide(tmp_path / "slide.tif", mpp=1.0)


def _counted(slide: Slide, stride: int) -> np.ndarray:
    """Tissue pixels of each cell over its area: of a mask of 4 µm, counted pixel by pixel, nothing beyond the slide."""
    height, width = slide.size_yx
    is_tissue = np.zeros((height + stride, width + stride), bool)
    is_tissue[:height, :width] = tissue_mask(slide.thumbnail(4.0)).repeat(4, axis=0).repeat(4, axis=1)
    rows, columns = -(-height // stride), -(-width // stride)
    cells = [is_tissue[i * stride :, j * stride :] for i in range(rows) for j in range(columns)]
    return np.array([cell[:stride, :stride].mean() for cell in cells]).reshape(rows, columns)


@pytest.mark.parametrize("least", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("stride", [32, 48])
def test_cells_with_enough_tissue_are_those_that_counting_pixels_finds(
    slide: Slide, stride: int, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells_module, "_CELLS_AT_ONCE", 3 * -(-512 // stride))  # a few rows at a time
    cells, fraction = tissue_cells(slide, Grid(float(stride), 1.0, slide.size_yx), TissueRules(4.0), least)
    counted = _counted(slide, stride)
    assert 0 < counted.mean() < 1
    np.testing.assert_array_equal(cells, np.argwhere((counted > 0) & (counted >= least)))
    np.testing.assert_allclose(fraction, counted[tuple(cells.T)], atol=1e-6)
    assert cells.dtype == np.int64
    assert fraction.dtype == np.float32


def test_what_lies_beyond_the_slide_is_no_tissue_even_where_the_mask_reaches_further(slide: Slide) -> None:
    # The mask's last row covers 320..336 at 16 µm, the slide ends at 328; a cell of 16 µm lies on it exactly.
    cells, fraction = tissue_cells(slide, Grid(16.0, 1.0, slide.size_yx), TissueRules(), 0.0)
    assert fraction[(cells[:, 0] == 20) & (cells[:, 1] == 12)] == pytest.approx(0.5)


def test_a_blank_slide_has_no_cells(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "blank.tif", np.full((300, 200, 3), 245, np.uint8), tile=(64, 64))
    with open_slide(tmp_path / "blank.tif", mpp=1.0) as slide:
        cells, fraction = tissue_cells(slide, Grid(32.0, 1.0, slide.size_yx), TissueRules(8.0), 0.0)
    assert cells.shape == (0, 2)
    assert fraction.shape == (0,)


def test_a_fraction_beyond_one_is_refused(slide: Slide) -> None:
    with pytest.raises(ValueError, match=r"min_tissue_fraction: got 50"):
        tissue_cells(slide, Grid(32.0, 1.0, slide.size_yx), TissueRules(4.0), 50)
