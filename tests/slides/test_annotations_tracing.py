from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage
from skimage import draw, measure

from histo_monai.slides.annotations import (
    Region,
    mask_regions,
    rasterize_regions,
    read_geojson,
    write_geojson,
)


def of_text(*rows: str) -> np.ndarray:
    return np.array([[sign == "#" for sign in row] for row in rows])


ISLAND_IN_A_LAKE_ON_AN_ISLAND = of_text(
    "#######",
    "#.....#",
    "#.###.#",
    "#.#.#.#",
    "#.###.#",
    "#.....#",
    "#######",
)


def area(points: np.ndarray) -> float:
    y, x = points.T
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def drawn(regions: list[Region], shape: tuple[int, int]) -> np.ndarray:
    """Filled by scikit-image, which counts from the middles of pixels."""
    mask = np.zeros(shape, bool)
    for region in regions:
        one = draw.polygon2mask(shape, region.exterior_yx - 0.5)
        for hole in region.holes_yx:
            one &= ~draw.polygon2mask(shape, hole - 0.5)
        mask |= one
    return mask


def test_a_mask_of_text_has_the_outlines_that_one_sees() -> None:
    outer, inner = mask_regions(ISLAND_IN_A_LAKE_ON_AN_ISLAND, 10.0, label="Tumor", corner_yx=(1, 2))
    assert outer.exterior_yx.tolist() == [[10, 20], [10, 90], [80, 90], [80, 20]]
    assert [hole.tolist() for hole in outer.holes_yx] == [[[20, 30], [20, 80], [70, 80], [70, 30]]]
    assert inner.exterior_yx.tolist() == [[30, 40], [30, 70], [60, 70], [60, 40]]
    assert [hole.tolist() for hole in inner.holes_yx] == [[[40, 50], [40, 60], [50, 60], [50, 50]]]
    assert (outer.label, inner.label) == ("Tumor", "Tumor")


@pytest.mark.parametrize("seed", range(60))
def test_outlines_of_a_random_mask_are_simple_and_give_it_back_also_from_a_file(
    seed: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 16, 2))
    mask = rng.random(shape) < rng.choice([0.3, 0.5, 0.7, 0.9])
    downsample = float(rng.choice([1, 4, 3.7, 1 / 3, 303.03]))
    corner = tuple(int(n) for n in rng.integers(-3, 9, 2))
    regions = mask_regions(mask, downsample, corner_yx=corner)
    window = {"downsample": downsample, "shape": shape, "corner_yx": corner}
    np.testing.assert_array_equal(rasterize_regions(regions, **window), mask)
    write_geojson(tmp_path / "a.geojson", regions)
    np.testing.assert_array_equal(rasterize_regions(read_geojson(tmp_path / "a.geojson")[0], **window), mask)
    assert len(regions) == measure.label(mask, connectivity=1).max()
    pixels = sum(area(one.exterior_yx) - sum(map(area, one.holes_yx)) for one in regions)
    assert pixels / downsample**2 == pytest.approx(mask.sum())
    for outline in (outline for one in regions for outline in (one.exterior_yx, *one.holes_yx)):
        assert len(np.unique(outline, axis=0)) == len(outline)  # no place is passed twice
        turns = np.diff(outline, axis=0, append=outline[:1]) != 0
        assert (turns.sum(axis=1) == 1).all()  # along rows and columns only
        assert (turns[:, 0] != np.roll(turns[:, 0], 1)).all()  # and no point on a straight line


@pytest.mark.parametrize(
    ("mask", "num_holes"),
    [
        (of_text("#.", ".#"), [0, 0]),  # two regions that touch at a corner
        (of_text(".##", "#.#", "###"), [1]),  # a hole that touches the outside at a corner
        (of_text("####", "#.##", "##.#", "####"), [2]),  # two holes that touch
        (of_text("#####", "#.#.#", "##.##", "#.#.#", "#####"), [5]),
        (of_text("..", ".."), []),
        (of_text("##", "##"), [0]),
    ],
)
def test_corners_that_touch_are_cut_so_that_no_outline_meets_itself(
    mask: np.ndarray, num_holes: list[int]
) -> None:
    regions = mask_regions(mask, 1.0)
    assert [len(one.holes_yx) for one in regions] == num_holes
    np.testing.assert_array_equal(drawn(regions, mask.shape), mask)


def test_a_large_mask_is_traced_in_seconds_and_scikit_image_fills_it_likewise() -> None:
    noise = np.random.default_rng(0).normal(size=(2000, 2000)).astype(np.float32)
    mask = ndimage.gaussian_filter(noise, 12) > 0.005
    regions = mask_regions(mask, 1.0)
    assert len(regions) > 50
    np.testing.assert_array_equal(drawn(regions[1:4], mask.shape), parts_of(mask, regions[1:4]))
    np.testing.assert_array_equal(rasterize_regions(regions, downsample=1, shape=mask.shape), mask)


def parts_of(mask: np.ndarray, regions: list[Region]) -> np.ndarray:
    """The parts of a mask that regions begin in."""
    labels = measure.label(mask, connectivity=1)
    starts = [one.exterior_yx[0].astype(int) for one in regions]
    return np.isin(labels, [labels[y, x] for y, x in starts])


@pytest.mark.parametrize(
    ("mask", "downsample"),
    [(np.ones((2, 2), int), 1.0), (np.ones((2, 2, 2), bool), 1.0), (np.ones((2, 2), bool), 0.0)],
)
def test_what_is_no_mask_is_refused(mask: np.ndarray, downsample: float) -> None:
    with pytest.raises(ValueError, match="expected a mask"):
        mask_regions(mask, downsample)
