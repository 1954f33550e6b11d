from __future__ import annotations

import numpy as np
import pytest

from histo_monai.data.simulated.raster.pyramid import write_pyramid
from histo_monai.reports.maps.mosaic import map_mosaic, mask_picture
from histo_monai.reports.maps.overlay import blend, layout, outlined, overlay, round_length
from histo_monai.slides import open_slide
from histo_monai.slides.annotations import Region
from histo_monai.slides.tiles.grid import Grid
from histo_monai.wsi.heatmaps.heatmap import Heatmap
from histo_monai.wsi.heatmaps.tiff_map import PALETTE

GRAY = 128


def _heatmap(grid: Grid, predictions: dict[tuple[int, int], float]) -> Heatmap:
    """A map of a few cells."""
    cells = np.array(sorted(predictions), np.int64)
    values = np.array([predictions[row, column] for row, column in cells], np.float32)
    return Heatmap(grid, cells, np.ones(len(cells), np.float32), {"rsp": values})


def _gray(height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), GRAY, np.uint8)


def _box(mask: np.ndarray) -> tuple[int, int, int, int]:
    """First row, first column, row after the last, column after the last."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return rows[0], columns[0], rows[-1] + 1, columns[-1] + 1


def _rectangle(top: float, left: float, bottom: float, right: float) -> Region:
    return Region(np.array([(top, left), (top, right), (bottom, right), (bottom, left)], np.float64))


@pytest.mark.parametrize(
    ("size_yx", "mpp", "factor"),
    [((900, 1100), 0.5, 2), ((1203, 1017), 0.2528, 2), ((1301, 1029), 0.25, 4), ((251, 237), 0.4991, 2)],
)
def test_a_planted_cross_and_the_cell_over_it_lie_within_one_pixel_on_any_pyramid(
    tmp_path, size_yx, mpp, factor
):
    middle_y, middle_x = (int(0.6 * side) for side in size_yx)
    pixels = np.full((*size_yx, 3), 245, np.uint8)
    pixels[middle_y - 2 : middle_y + 3, middle_x - 20 : middle_x + 21] = 0
    pixels[middle_y - 20 : middle_y + 21, middle_x - 2 : middle_x + 3] = 0
    write_pyramid(tmp_path / "slide.tif", [pixels], size_yx, mpp=mpp, factor=factor, quality=95)
    grid = Grid(25.0, mpp, size_yx)
    row, column = (int((middle + 0.5) * mpp / 25) for middle in (middle_y, middle_x))
    heatmap = _heatmap(grid, {(row, column): 1.0})
    with open_slide(tmp_path / "slide.tif") as slide:
        thumbnail = slide.thumbnail(slide.mpp)
    picture = overlay(thumbnail, mpp, heatmap, "rsp", regions=[], title="cross", quantity="tumor probability")
    top, left = layout(size_yx, "cross").corner_yx
    shown = picture[top : top + size_yx[0], left : left + size_yx[1]].astype(int)
    dark = shown.sum(axis=2) < 300
    first_y, first_x, last_y, last_x = _box(dark)
    np.testing.assert_allclose([first_y, last_y], [middle_y - 20, middle_y + 21], atol=1)
    np.testing.assert_allclose([first_x, last_x], [middle_x - 20, middle_x + 21], atol=1)
    reddish = shown[..., 0] - shown[..., 1] > 60
    edges = np.array([row, column, row + 1, column + 1]) * 25 / mpp
    np.testing.assert_allclose(_box(reddish), edges, atol=1)


@pytest.mark.parametrize("thumbnail_mpp", [0.5, 1.3, 8.0])
def test_each_pixel_takes_the_color_of_the_cell_its_middle_lies_in(thumbnail_mpp):
    rng = np.random.default_rng(0)
    grid = Grid(8.0, 0.5, (97, 143))
    predictions = {cell: rng.random() for cell in np.ndindex(grid.shape) if rng.random() < 0.7}
    thumbnail = _gray(*(int(np.ceil(side * 0.5 / thumbnail_mpp)) for side in grid.size_yx))
    shown = blend(thumbnail, thumbnail_mpp, _heatmap(grid, predictions), "rsp").astype(float)
    for y, x in np.ndindex(thumbnail.shape[:2]):
        value = predictions.get((int((y + 0.5) * thumbnail_mpp / 8), int((x + 0.5) * thumbnail_mpp / 8)))
        if value is None:
            assert (shown[y, x] == GRAY).all()
            continue
        color = PALETTE[1 + round(254 * value)].astype(float)
        towards = color - GRAY
        fraction = (shown[y, x] - GRAY) @ towards / (towards @ towards)
        np.testing.assert_allclose(shown[y, x], GRAY + fraction * towards, atol=1)
        assert (0.15 < fraction < 0.35) if value < 0.1 else fraction < 0.65


def test_low_values_are_almost_clear_and_high_ones_are_red():
    grid = Grid(10.0, 1.0, (10, 110))
    heatmap = _heatmap(grid, {(0, column): column / 10 for column in range(11)})
    shown = blend(_gray(10, 110), 1.0, heatmap, "rsp")[5, 5::10].astype(int)
    away = np.abs(shown - GRAY).max(axis=1)
    assert away[0] < 30 < 60 < away[10]
    assert (np.diff((shown[:, 0] - shown[:, 2])[2:9]) > 0).all()  # Ever redder.


@pytest.mark.parametrize("size_yx", [(200, 200), (300, 3000), (900, 120), (1500, 1400)])
def test_the_picture_lies_in_the_canvas_pixel_by_pixel_at_the_stated_corner(size_yx):
    rng = np.random.default_rng(0)
    thumbnail = rng.integers(0, 256, (*size_yx, 3), np.uint8)
    heatmap = _heatmap(Grid(50.0, 2.0, size_yx), {(0, 0): 0.9, (2, 3): 0.4})
    regions = [_rectangle(20, 30, 90, 80)]
    canvas = overlay(thumbnail, 2.0, heatmap, "rsp", regions=regions, title="a slide", quantity="cellularity")
    plan = layout(size_yx, "a slide")
    assert canvas.shape == (*plan.canvas_yx, 3)
    top, left = plan.corner_yx
    inside = canvas[top : top + size_yx[0], left : left + size_yx[1]]
    np.testing.assert_array_equal(inside, blend(thumbnail, 2.0, heatmap, "rsp", regions=regions))
    around = canvas.copy()
    around[top : top + size_yx[0], left : left + size_yx[1]] = 255
    first_y, first_x, last_y, last_x = _box((around < 255).any(axis=2))
    assert first_y > 0  # The words are whole: white is left on all sides.
    assert first_x > 0
    assert last_y < canvas.shape[0]
    assert last_x < canvas.shape[1]


def test_outlines_and_holes_are_drawn_on_the_edges_where_they_are():
    region = _rectangle(100, 200, 420, 701)
    region = Region(region.exterior_yx, (_rectangle(200, 300, 280, 500).exterior_yx,))
    shown = outlined(_gray(300, 450), 0.5, [region]).astype(int)
    green = shown[..., 1] - shown[..., 0] > 60
    # An edge between two pixels takes both, one through the middle of a pixel takes that.
    assert np.flatnonzero(green[175]).tolist() == [99, 100, 350]
    assert np.flatnonzero(green[120]).tolist() == [99, 100, 149, 150, 249, 250, 350]
    assert np.flatnonzero(green[:, 200]).tolist() == [49, 50, 99, 100, 139, 140, 209, 210]
    assert (shown[120, [98, 101, 349, 351]] < GRAY / 2).all()  # A dark rim on both sides.


def test_the_scale_bar_is_as_long_as_its_label():
    heatmap = _heatmap(Grid(50.0, 2.0, (400, 1000)), {(0, 0): 0.0})
    canvas = overlay(_gray(400, 1000), 2.0, heatmap, "rsp", regions=[], title="", quantity="cellularity")
    foot = canvas[layout((400, 1000), "").corner_yx[0] + 400 :]
    is_ink = (foot == 51).all(axis=2)
    assert is_ink.sum(axis=1).max() == 100  # 200 µm, the round length next below a fifth of 2 mm.


@pytest.mark.parametrize(
    ("length_um", "rounded"),
    [(1, 1), (1.99, 1), (730, 500), (500, 500), (4999, 2000), (10_000, 10_000), (0.3, 0.2), (86, 50)],
)
def test_round_lengths_are_one_two_and_five(length_um, rounded):
    assert round_length(length_um) == pytest.approx(rounded)


def test_a_thumbnail_of_another_slide_or_coarser_than_the_map_is_refused():
    heatmap = _heatmap(Grid(50.0, 2.0, (400, 1000)), {(0, 0): 0.5})
    with pytest.raises(ValueError, match=r"Fix: give \(200, 500\)"):
        blend(_gray(200, 480), 4.0, heatmap, "rsp")
    with pytest.raises(ValueError, match="take a finer thumbnail"):
        blend(_gray(14, 34), 60.0, heatmap, "rsp")


def test_a_mosaic_shows_each_picture_in_its_column_in_its_own_proportions():
    def plain(color: tuple[int, int, int], height: int, width: int) -> np.ndarray:
        return np.full((height, width, 3), color, np.uint8)

    colors = [(200, 0, 0), (0, 200, 0), (0, 0, 200), (200, 0, 200)]
    sizes = [(600, 900), (30, 90), (700, 350), (240, 240)]
    pictures = [plain(color, *size) for color, size in zip(colors, sizes, strict=True)]
    mosaic = map_mosaic([("test_001 macro", pictures[:2]), ("test_002", pictures[2:])], ["slide", "rsp"])
    boxes = [_box((mosaic == color).all(axis=2)) for color in colors]
    spans = [(bottom - top, right - left) for top, left, bottom, right in boxes]
    assert spans == [(160, 240), (80, 240), (240, 120), (240, 240)]
    middles = np.array([(top + bottom, left + right) for top, left, bottom, right in boxes]) / 2
    np.testing.assert_allclose(middles[[0, 2], 0], middles[[1, 3], 0], atol=1)
    np.testing.assert_allclose(middles[[0, 1], 1], middles[[2, 3], 1], atol=1)


def test_a_row_that_lacks_a_picture_is_refused():
    with pytest.raises(ValueError, match="row 'a': 1 pictures for 2 columns"):
        map_mosaic([("a", [_gray(10, 10)])], ["slide", "rsp"])
    with pytest.raises(ValueError, match="takes rows and columns"):
        map_mosaic([], [])


def test_the_reference_is_white_where_its_regions_are():
    picture = mask_picture([_rectangle(20, 40, 120, 80)], (100, 60), 0.5, 1.0)
    assert _box(picture.any(axis=2)) == (10, 20, 60, 40)
    assert set(np.unique(picture)) == {0, 255}
    assert not mask_picture([], (100, 60), 0.5, 1.0).any()
