from __future__ import annotations

import numpy as np
import pytest

from histo_monai.slides import sample_centers, tissue_fraction


@pytest.fixture
def mask():
    mask = np.zeros((60, 80), bool)
    mask[10:40, 20:70] = True
    mask[20:25, 30:35] = False
    return mask


def draw(mask, num=200, fraction=0.6, seed=0, **changes):
    settings = {"mask_mpp": 8.0, "slide_mpp": 0.5, "side_um": 96.0} | changes
    return sample_centers(
        mask, num=num, min_tissue_fraction=fraction, generator=np.random.default_rng(seed), **settings
    )


def fraction_by_counting(mask, center_px, ratio, side_px):
    """Level-0 pixels of the field that are tissue, counted one by one."""
    full = np.kron(mask, np.ones((ratio, ratio), bool))
    y, x = (int(value) - side_px // 2 for value in center_px)
    inside = full[max(y, 0) : max(y + side_px, 0), max(x, 0) : max(x + side_px, 0)]
    return inside.sum() / side_px**2


def test_every_center_holds_the_tissue_asked_for(mask):
    centers = draw(mask)
    assert centers.shape == (200, 2)
    assert centers.dtype == np.int64
    parts = [fraction_by_counting(mask, center, 16, 192) for center in centers]
    assert min(parts) >= 0.6
    assert min(parts) < 0.7  # the border is reached, not only the middle


def test_tissue_fraction_is_exact_area(mask):
    rng = np.random.default_rng(0)
    centers = rng.integers(-100, 1400, (50, 2))
    fractions = tissue_fraction(mask, centers / 16, 12.0)
    truth = [fraction_by_counting(mask, center, 16, 192) for center in centers]
    np.testing.assert_allclose(fractions, truth, atol=1e-9)


def test_the_same_generator_gives_the_same_centers_and_another_gives_others(mask):
    np.testing.assert_array_equal(draw(mask, seed=4), draw(mask, seed=4))
    assert not np.array_equal(draw(mask, seed=4), draw(mask, seed=5))


def test_no_center_is_drawn_twice(mask):
    centers = draw(mask, num=20_000)
    assert len(centers) == 20_000
    assert len(np.unique(centers, axis=0)) == 20_000


def test_mask_pixels_are_drawn_without_replacement_while_they_last(mask):
    centers = draw(mask, num=700)
    assert len(np.unique(centers // 16, axis=0)) == 700


def test_centers_spread_uniformly_over_the_eligible_area():
    mask = np.ones((40, 40), bool)
    centers = draw(mask, num=40_000, fraction=0.0)
    counts, _, _ = np.histogram2d(*centers.T, bins=8, range=[[0, 640], [0, 640]])
    expected = 40_000 / 64
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert chi_squared < 103  # 63 degrees of freedom, p = 0.001


def test_fewer_eligible_than_asked_gives_all_there_are():
    mask = np.zeros((20, 20), bool)
    mask[10, 10] = True
    centers = draw(mask, num=1000, fraction=1.0, mask_mpp=2.0, slide_mpp=0.5, side_um=1.0)
    # A field of 2 x 2 level-0 pixels inside a mask pixel of 4 x 4: 3 x 3 places, those at its far edge too.
    assert sorted(map(tuple, centers)) == [(y, x) for y in (41, 42, 43) for x in (41, 42, 43)]


def test_nothing_eligible_gives_nothing(mask):
    assert draw(np.zeros_like(mask)).shape == (0, 2)
    assert draw(np.zeros_like(mask), fraction=0.0).shape == (0, 2)
    assert draw(mask, side_um=5000.0).shape == (0, 2)
    assert draw(mask, num=0).shape == (0, 2)


@pytest.mark.parametrize("grid_px", [4, 7, 64])
def test_centers_lie_on_the_grid(mask, grid_px):
    centers = draw(mask, grid_px=grid_px)
    assert len(centers) > 50
    assert (centers % grid_px == 0).all()


def test_a_resolution_that_does_not_divide_the_masks_is_handled(mask):
    centers = draw(mask, slide_mpp=0.2528, num=500)
    fractions = tissue_fraction(mask, centers * 0.2528 / 8, 12.0)
    assert len(centers) == 500
    assert fractions.min() >= 0.6 - 1e-9


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"fraction": 1.5}, "min_tissue_fraction"),
        ({"side_um": 0.0}, "side_um"),
        ({"num": -1}, "num"),
        ({"grid_px": 0}, "grid_px"),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(mask, changes, named):
    with pytest.raises(ValueError, match=named):
        draw(mask, **changes)


def test_the_field_that_must_be_inside_is_inside():
    mask = np.ones((40, 50), bool)
    within_um = 16 * 12.5
    centers = sample_centers(
        mask,
        mask_mpp=16.0,
        slide_mpp=0.5,
        num=3000,
        side_um=32,
        min_tissue_fraction=0.5,
        generator=np.random.default_rng(0),
        within_um=within_um,
    )
    assert len(centers) == 3000
    um = centers * 0.5
    assert um.min() >= within_um / 2
    assert (um <= np.array([39, 49]) * 16 - within_um / 2).all()
    assert (um.min(axis=0) < within_um / 2 + 16).all()
    assert (um.max(axis=0) > np.array([39, 49]) * 16 - within_um / 2 - 16).all()


def test_a_slide_smaller_than_the_field_that_must_be_inside_has_no_center():
    mask = np.ones((10, 10), bool)
    centers = sample_centers(
        mask,
        mask_mpp=16.0,
        slide_mpp=0.5,
        num=5,
        side_um=32,
        min_tissue_fraction=0.5,
        generator=np.random.default_rng(0),
        within_um=200.0,
    )
    assert centers.shape == (0, 2)
