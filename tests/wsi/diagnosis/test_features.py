from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from histo_monai.slides.tiles.grid import Grid
from histo_monai.wsi.diagnosis.features import FEATURES, THRESHOLDS, slide_features
from histo_monai.wsi.heatmaps.heatmap import Heatmap

BACKGROUND = 0.125
"""A value below every threshold."""


def features_of(raster: NDArray, stride_um: float = 50.0, tissue: NDArray | None = None) -> dict[str, float]:
    """Of a map given as a picture, NaN where nothing was looked at; all tissue where none is given."""
    height, width = raster.shape
    grid = Grid(stride_um, 0.5, (round(height * stride_um / 0.5), round(width * stride_um / 0.5)))
    seen = ~np.isnan(raster)
    tissue_fractions = np.ones(raster.shape) if tissue is None else tissue
    values = {"student": raster[seen].astype(np.float32)}
    return slide_features(
        Heatmap(grid, np.argwhere(seen), tissue_fractions[seen].astype(np.float32), values), "student"
    )


def middles_mm(stride_um: float, side_mm: float = 6.0) -> tuple[NDArray, NDArray]:
    """(y, x) of the middles of cells over a square of tissue."""
    middle = (np.arange(round(side_mm * 1000 / stride_um)) + 0.5) * stride_um / 1000
    y, x = np.meshgrid(middle, middle, indexing="ij")
    return y, x


def rectangle(stride_um: float) -> NDArray:
    """2 mm high and 3 mm wide, of value 0.75, in a square of 6 mm."""
    y, x = middles_mm(stride_um)
    return np.where((y > 1) & (y < 3) & (x > 2) & (x < 5), 0.75, BACKGROUND)


@pytest.mark.parametrize("stride_um", [25.0, 50.0, 100.0, 250.0, 500.0, 1000.0])
def test_a_rectangle_has_the_closed_form_at_every_stride(stride_um: float) -> None:
    result = features_of(rectangle(stride_um), stride_um)
    expected = {
        "area_mm2": 6,
        "tissue_share": 6 / 36,
        "num_regions": 1,
        "mean_probability": 0.75,
        "largest_area_mm2": 6,
        "largest_major_axis_mm": 4 * 3 / np.sqrt(12),
        "largest_minor_axis_mm": 4 * 2 / np.sqrt(12),
        "largest_eccentricity": np.sqrt(1 - 4 / 9),
        "largest_extent": 1,
        "largest_solidity": 1,
        "largest_mean_probability": 0.75,
        "largest_max_probability": 0.75,
    }
    assert {name: result[f"{name}_t50"] for name in expected} == pytest.approx(expected)
    cauchy = np.pi / 4 * (2 + 3) * (1 + np.sqrt(2))  # π × mean width, seen from four directions
    assert result["largest_perimeter_mm_t50"] == pytest.approx(cauchy, abs=1.2 * stride_um / 1000)
    assert all(value == 0 for name, value in result.items() if name.endswith("_t90"))


@pytest.mark.parametrize("stride_um", [20.0, 40.0, 80.0])
def test_a_disc_has_the_closed_form_within_the_size_of_a_cell(stride_um: float) -> None:
    y, x = middles_mm(stride_um)
    result = features_of(np.where(np.hypot(y - 3, x - 3.1) < 1.5, 0.95, BACKGROUND), stride_um)
    for threshold in ("t50", "t90"):
        assert result[f"largest_area_mm2_{threshold}"] == pytest.approx(np.pi * 1.5**2, rel=0.01)
        assert result[f"largest_major_axis_mm_{threshold}"] == pytest.approx(3, rel=0.01)
        assert result[f"largest_minor_axis_mm_{threshold}"] == pytest.approx(3, rel=0.01)
        assert result[f"largest_eccentricity_{threshold}"] < 0.15
        assert result[f"largest_extent_{threshold}"] == pytest.approx(np.pi / 4, rel=0.03)
        assert result[f"largest_solidity_{threshold}"] == pytest.approx(1, abs=0.05)
        assert result[f"largest_perimeter_mm_{threshold}"] == pytest.approx(2 * np.pi * 1.5, rel=0.01)


def test_a_notched_square_is_less_solid_than_its_hull() -> None:
    """A square of 8 × 8 cells without its lower right quarter: the hull lacks half of that quarter."""
    raster = np.full((10, 10), BACKGROUND)
    raster[1:9, 1:9] = 0.75
    raster[5:9, 5:9] = BACKGROUND
    result = features_of(raster)
    assert result["largest_extent_t50"] == 48 / 64
    assert result["largest_solidity_t50"] == pytest.approx(48 / 56, abs=0.04)


def test_the_larger_of_two_regions_is_described_and_both_are_counted() -> None:
    raster = np.full((20, 20), BACKGROUND)
    raster[2:4, 2:4] = 1.0
    raster[10:13, 5:13] = 0.625
    result = features_of(raster)
    assert result["num_regions_t50"] == 2
    assert result["area_mm2_t50"] == pytest.approx(28 * 0.05**2)
    assert result["mean_probability_t50"] == pytest.approx((4 + 24 * 0.625) / 28)
    assert result["largest_area_mm2_t50"] == pytest.approx(24 * 0.05**2)
    assert result["largest_major_axis_mm_t50"] == pytest.approx(4 * 0.4 / np.sqrt(12))
    assert result["largest_max_probability_t50"] == 0.625
    assert result["num_regions_t90"] == 1
    assert result["largest_area_mm2_t90"] == pytest.approx(4 * 0.05**2)


def test_of_equally_large_regions_the_one_with_the_higher_mean_is_described() -> None:
    raster = np.full((9, 9), BACKGROUND)
    raster[1, 1:4], raster[4, 4:7], raster[7, 1:4] = 0.625, 0.875, 0.75
    assert features_of(raster)["largest_mean_probability_t50"] == 0.875
    assert features_of(raster[::-1])["largest_mean_probability_t50"] == 0.875


def test_cells_that_meet_at_a_corner_are_one_region_and_unseen_cells_part_regions() -> None:
    raster = np.where(np.eye(6) > 0, 0.75, np.nan)
    assert features_of(raster)["num_regions_t50"] == 1
    raster[3, 3] = np.nan
    assert features_of(raster)["num_regions_t50"] == 2


def test_one_cell_is_a_square() -> None:
    raster = np.full((5, 5), BACKGROUND)
    raster[2, 2] = 1.0
    result = features_of(raster, stride_um=100.0)
    assert result["largest_area_mm2_t90"] == pytest.approx(0.01)
    axes = result["largest_major_axis_mm_t90"], result["largest_minor_axis_mm_t90"]
    assert axes == pytest.approx((0.4 / np.sqrt(12),) * 2)
    assert result["largest_eccentricity_t90"] == 0
    assert (result["largest_extent_t90"], result["largest_solidity_t90"]) == (1, 1)
    assert 0.2 < result["largest_perimeter_mm_t90"] < 0.4


@pytest.mark.parametrize("turn", range(4))
@pytest.mark.parametrize("flip", [1, -1])
def test_features_do_not_depend_on_how_the_slide_lies(turn: int, flip: int) -> None:
    random = np.random.default_rng(0)
    raster, tissue = random.random((30, 40)), random.random((30, 40))
    turned = [np.rot90(array, turn)[:, ::flip] for array in (raster, tissue)]
    expected = features_of(raster, tissue=tissue)
    assert features_of(turned[0], tissue=turned[1]) == pytest.approx(expected)


def test_areas_and_means_are_of_tissue_and_the_largest_region_has_most_of_it() -> None:
    raster = np.array([[0.75, 0.75, 0.75, np.nan, 1.0, 0.25]])
    tissue = np.array([[0.25, 0.25, 0.25, 0.0, 1.0, 0.25]])
    result = features_of(raster, stride_um=1000.0, tissue=tissue)
    assert result["area_mm2_t50"] == 1.75
    assert result["tissue_share_t50"] == 1.75 / 2
    assert result["largest_area_mm2_t50"] == 1
    assert result["mean_probability_t50"] == pytest.approx((0.75 * 0.75 + 1) / 1.75)
    assert result["mean_probability"] == pytest.approx((0.75 * 0.75 + 1 + 0.25 * 0.25) / 2)


def test_cells_without_tissue_count_nowhere() -> None:
    raster, tissue = rectangle(500.0), np.ones((12, 12))
    raster[8, 8], tissue[8, 8] = 1.0, 0.0
    without = raster.copy()
    without[8, 8] = np.nan
    assert features_of(raster, tissue=tissue) == features_of(without)


def test_statistics_of_the_map_are_those_of_its_tissue_repeated() -> None:
    """A cell with three parts of tissue counts like three cells with one."""
    random = np.random.default_rng(1)
    values, parts = random.random(200).astype(np.float32), random.integers(1, 5, 200)
    result = features_of(values[None], tissue=parts[None] / 4)
    repeated = np.repeat(values.astype(np.float64), parts)
    expected = {
        "max_probability": repeated.max(),
        "mean_probability": repeated.mean(),
        "sd_probability": repeated.std(),
        "skewness_probability": ((repeated - repeated.mean()) ** 3).mean() / repeated.std() ** 3,
        "median_probability": np.quantile(repeated, 0.5, method="inverted_cdf"),
        "q90_probability": np.quantile(repeated, 0.9, method="inverted_cdf"),
        "q99_probability": np.quantile(repeated, 0.99, method="inverted_cdf"),
    }
    assert {name: result[name] for name in expected} == pytest.approx(expected)


def test_a_threshold_is_reached_by_a_value_equal_to_it() -> None:
    result = features_of(np.array([[0.5, 0.9, np.float32(0.9) - 1e-6, 0.4999]]))
    cell_mm2 = 0.05**2
    assert [result["area_mm2_t50"], result["area_mm2_t90"]] == pytest.approx([3 * cell_mm2, cell_mm2])


@pytest.mark.parametrize("raster", [np.full((3, 3), np.nan), np.zeros((3, 3))])
def test_where_nothing_is_there_everything_is_zero(raster: NDArray) -> None:
    assert features_of(raster) == dict.fromkeys(FEATURES, 0.0)


def test_a_map_of_one_value_has_no_skewness() -> None:
    result = features_of(np.full((7, 11), 0.3), tissue=np.random.default_rng(0).random((7, 11)))
    assert result["skewness_probability"] == 0
    assert result["sd_probability"] == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_every_feature_is_present_in_order_and_finite(seed: int) -> None:
    random = np.random.default_rng(seed)
    raster = random.beta(0.3, 0.3, random.integers(1, 12, 2))
    raster[random.random(raster.shape) < 0.4] = np.nan
    result = features_of(raster, tissue=random.random(raster.shape))
    assert list(result) == list(FEATURES)
    assert all(type(value) is float and np.isfinite(value) for value in result.values())


@pytest.mark.parametrize("value", [1.5, -0.1])
def test_values_that_are_no_probabilities_are_refused_by_cell(value: float) -> None:
    raster = np.array([[0.5, 0.5], [0.5, value]])
    with pytest.raises(ValueError, match=r"student: cell \(1, 1\) has value"):
        features_of(raster)


def test_a_model_that_the_map_does_not_have_is_refused() -> None:
    empty = Heatmap(Grid(50.0, 0.5, (100, 100)), np.zeros((0, 2), np.int64), np.zeros(0, np.float32), {})
    with pytest.raises(ValueError, match="no model 'student'"):
        slide_features(empty, "student")


def test_the_document_lists_every_feature(root: Path) -> None:
    text = (root / "docs" / "slide_features.md").read_text(encoding="utf-8")
    for name in FEATURES:
        stem, _, end = name.rpartition("_")
        assert f"`{stem if end in ('t50', 't90') else name}`" in text, name
    assert all(f"{threshold:g}" in text for threshold in THRESHOLDS)
