from __future__ import annotations

import math

import numpy as np
import pytest

from histo_monai.slides.annotations import rasterize_regions
from histo_monai.slides.tiles.grid import Grid
from histo_monai.wsi.diagnosis.detections import find_detections, find_regions
from histo_monai.wsi.heatmaps.heatmap import Heatmap

MPP = 0.243  # 263.37... level-0 pixels per cell of 64 µm.


def _heatmap(values: np.ndarray, size_yx: tuple[int, int] | None = None) -> Heatmap:
    """A map of exactly these cells; NaN is not looked at."""
    size_yx = size_yx or tuple(math.floor(side * 64 / MPP) for side in values.shape)
    cells = np.argwhere(~np.isnan(values))
    predictions = values[tuple(cells.T)].astype(np.float32)
    return Heatmap(Grid(64.0, MPP, size_yx), cells, np.ones(len(cells), np.float32), {"rsp": predictions})


def _blobs(seed: int, rows: int = 40, columns: int = 60) -> np.ndarray:
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:rows, :columns]
    values = 0.1 * rng.random((rows, columns))
    for center_y, center_x, high, wide in rng.random((12, 4)):
        away = (y - center_y * rows) ** 2 + (x - center_x * columns) ** 2
        values = np.maximum(values, high * np.exp(-away / (2 * (1 + 3 * wide) ** 2)))
    values[rng.random((rows, columns)) < 0.1] = np.nan
    return values.astype(np.float32)


def _suppressed_one_by_one(values: np.ndarray, threshold: float, reach: int) -> list[tuple[float, int, int]]:
    result = []
    alive = {cell: value for cell, value in np.ndenumerate(values) if value > np.float32(threshold)}
    while alive:
        row, column = max(alive, key=lambda cell: alive[cell])
        result.append((float(alive[row, column]), row, column))
        alive = {
            (i, j): value for (i, j), value in alive.items() if max(abs(i - row), abs(j - column)) > reach
        }
    return result


def _smoothed_one_by_one(values: np.ndarray, sigma: float) -> np.ndarray:
    """The sum of each cell's neighbors by a Gaussian of their distance; what was not looked at or is outside is 0."""
    reach = math.ceil(4 * sigma)
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    kernel = np.outer(weights, weights) / weights.sum() ** 2
    padded = np.pad(np.nan_to_num(values).astype(np.float64), reach)
    smooth = np.zeros(values.shape)
    for (i, j), weight in np.ndenumerate(kernel):
        smooth += weight * padded[i : i + values.shape[0], j : j + values.shape[1]]
    return np.where(np.isnan(values), 0, smooth)


@pytest.mark.parametrize(("radius_um", "reach"), [(0, 0), (63, 0), (64, 1), (200, 3), (512, 8)])
def test_detections_are_those_of_a_plain_loop(radius_um, reach):
    for seed in range(3):
        values = _blobs(seed)
        detections = find_detections(
            _heatmap(values), "rsp", threshold=0.3, radius_um=radius_um, smoothing_um=0, label="tumor"
        )
        naive = _suppressed_one_by_one(np.nan_to_num(values), 0.3, reach)
        assert len(naive) > 3
        assert [point.measurements["probability"] for point in detections] == [value for value, *_ in naive]
        expected = [((row + 0.5) * 64 / MPP, (column + 0.5) * 64 / MPP) for _, row, column in naive]
        np.testing.assert_allclose([point.yx for point in detections], expected, rtol=0, atol=1e-6)
        assert {point.label for point in detections} == {"tumor"}


def test_smoothing_is_a_gaussian_of_the_stated_width():
    values = _blobs(3)
    heatmap = _heatmap(values)
    detections = find_detections(heatmap, "rsp", threshold=0.1, radius_um=320, smoothing_um=96, label="")
    naive = _suppressed_one_by_one(_smoothed_one_by_one(values, 1.5), 0.1, 5)
    assert len(detections) == len(naive) > 3
    for point, (value, row, column) in zip(detections, naive, strict=True):
        assert point.measurements["probability"] == pytest.approx(value, abs=1e-5)
        assert point.yx == tuple(heatmap.grid.centers_yx(np.array([row, column])))


def test_a_cell_that_was_not_looked_at_is_no_detection_however_bright_its_neighbors():
    values = np.full((9, 9), np.nan, np.float32)
    values[3:6, 3:6] = 0.9
    values[4, 4] = np.nan
    detections = find_detections(
        _heatmap(values), "rsp", threshold=0.2, radius_um=0, smoothing_um=64, label=""
    )
    cells = {tuple(np.floor(np.array(point.yx) * MPP / 64).astype(int)) for point in detections}
    assert cells == {(i, j) for i in (3, 4, 5) for j in (3, 4, 5)} - {(4, 4)}


def test_the_map_is_left_as_it_was():
    heatmap = _heatmap(_blobs(0))
    before = heatmap.values["rsp"].copy()
    find_detections(heatmap, "rsp", threshold=0.3, radius_um=64, smoothing_um=0, label="")
    np.testing.assert_array_equal(heatmap.values["rsp"], before)


def test_nothing_above_the_threshold_is_nothing_found():
    heatmap = _heatmap(np.full((4, 5), 0.4, np.float32))
    assert find_detections(heatmap, "rsp", threshold=0.4, radius_um=64, smoothing_um=0, label="") == []
    assert find_regions(heatmap, "rsp", threshold=0.41, label="") == []
    assert len(find_regions(heatmap, "rsp", threshold=0.4, label="")) == 1


def test_regions_drawn_on_the_grid_are_the_cells_at_or_above_the_threshold():
    for seed in range(3):
        values = _blobs(seed)
        regions = find_regions(_heatmap(values), "rsp", threshold=0.3, label="tumor")
        drawn = [rasterize_regions([one], downsample=64 / MPP, shape=values.shape) for one in regions]
        np.testing.assert_array_equal(np.sum(drawn, axis=0), values >= np.float32(0.3))
        for mask, region in zip(drawn, regions, strict=True):
            measurements = region.measurements
            assert measurements["mean probability"] == pytest.approx(values[mask].astype(np.float64).mean())
            assert measurements["max probability"] == values[mask].max()


def test_regions_come_by_their_highest_value_and_then_by_area_and_are_numbered_so():
    values = np.zeros((5, 9), np.float32)
    values[0, 0], values[0, 4:6], values[3:, 0:4], values[4, 8] = 0.7, 0.9, 0.7, 0.9
    regions = find_regions(_heatmap(values), "rsp", threshold=0.5, label="tumor")
    assert [region.name for region in regions] == [f"tumor {number}" for number in (1, 2, 3, 4)]
    cells_mm2 = 0.064**2
    areas = [region.measurements["area mm^2"] for region in regions]
    # The lower right corner is a cell of the slide's last, cut row and column: less than a cell.
    np.testing.assert_allclose(areas, np.array([2, 1, 8, 1]) * cells_mm2, rtol=0.02)
    assert [region.measurements["max probability"] for region in regions] == pytest.approx(
        [0.9, 0.9, 0.7, 0.7]
    )


def test_cells_that_touch_at_a_corner_are_two_regions():
    values = np.array([[0.9, 0.1], [0.1, 0.9]], np.float32)
    assert len(find_regions(_heatmap(values), "rsp", threshold=0.5, label="")) == 2


def test_an_outline_runs_along_the_edges_of_its_cell_and_ends_where_the_slide_ends():
    values = np.zeros((3, 4), np.float32)
    values[1, 1] = values[2, 3] = 1
    cell = 64 / MPP
    height, width = size_yx = (round(2.25 * cell), round(3.5 * cell))
    inner, last = find_regions(_heatmap(values, size_yx), "rsp", threshold=0.5, label="")
    corners = {tuple(corner) for corner in (inner.exterior_yx / cell).round(9)}
    assert corners == {(1, 1), (1, 2), (2, 2), (2, 1)}
    np.testing.assert_allclose(last.exterior_yx.min(axis=0), [2 * cell, 3 * cell])
    np.testing.assert_array_equal(last.exterior_yx.max(axis=0), [height, width])
    covered_mm2 = (height - 2 * cell) * (width - 3 * cell) * (MPP / 1000) ** 2
    assert last.measurements["area mm^2"] == pytest.approx(covered_mm2, abs=1e-6)
    assert inner.measurements["area mm^2"] == pytest.approx(0.064**2)


def test_thresholds_and_lengths_that_mean_nothing_are_refused():
    heatmap = _heatmap(np.zeros((2, 2), np.float32))
    for threshold in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"in 0\.\.1"):
            find_regions(heatmap, "rsp", threshold=threshold, label="")
    for lengths in ({"radius_um": -1, "smoothing_um": 0}, {"radius_um": 0, "smoothing_um": -1}):
        with pytest.raises(ValueError, match="0 or more"):
            find_detections(heatmap, "rsp", threshold=0.5, label="", **lengths)
