from __future__ import annotations

import numpy as np
import pytest

from histo_monai.slides.resample import area_resample, make_patches, plan_window


def area_by_loops(image, top_left_yx, scale, side):
    """Mean of the image over every output pixel's square, summed input pixel by input pixel."""
    out = np.zeros((side, side, 3))
    for i in range(side):
        for j in range(side):
            y0, x0 = top_left_yx[0] + i * scale, top_left_yx[1] + j * scale
            for y in range(int(np.floor(y0)), int(np.ceil(y0 + scale))):
                for x in range(int(np.floor(x0)), int(np.ceil(x0 + scale))):
                    overlap_y = min(y + 1, y0 + scale) - max(y, y0)
                    overlap_x = min(x + 1, x0 + scale) - max(x, x0)
                    if overlap_y > 0 and overlap_x > 0:
                        out[i, j] += overlap_y * overlap_x * image[y, x].astype(float)
    return out / scale**2


def cut(image, window):
    y, x = window.corner_yx
    return np.ascontiguousarray(image[y : y + window.region_px, x : x + window.region_px])


@pytest.fixture(scope="module")
def picture():
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (90, 90, 3), np.uint8)


def made(region, window):
    """The patch of one window, (side, side, 3)."""
    patch = np.zeros((3, window.side_px, window.side_px), np.uint8)
    make_patches([region], [window], [patch])
    return patch.transpose(1, 2, 0)


SCALES = [1.0, 2.0, 4.0, 0.95, 0.99, 1.011, 1.5, 2.02, 2.7, 3.96]
CENTERS = [(41.0, 44.0), (41.5, 44.5), (40.3, 44.71), (42.0, 43.37)]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("center_yx", CENTERS)
def test_every_patch_pixel_is_the_mean_over_the_area_it_covers(picture, scale, center_yx):
    side = 16
    window = plan_window(center_yx, side, scale)
    patch = made(cut(picture, window), window)
    truth = area_by_loops(picture, [value - side * scale / 2 for value in center_yx], scale, side)
    error = np.abs(patch - truth)
    # White noise is the worst case; the fast paths take a step within 6 % of a whole one for a whole one.
    assert error.mean() < 2.1
    if scale in (1.0, 2.0, 4.0, 1.5, 2.7):
        assert error.max() <= 1.6  # rounding to whole gray levels, up to three times


def test_a_patch_on_whole_pixels_is_copied_bit_by_bit(picture):
    window = plan_window((40.0, 30.0), 16, 1.0)
    assert window.is_aligned
    np.testing.assert_array_equal(made(cut(picture, window), window), picture[32:48, 22:38])


def test_area_resample_keeps_a_constant_image_constant():
    image = np.full((37, 53, 3), 201, np.uint8)
    out = area_resample(image, (0.0, 0.0), (3.7, 5.3), (10, 10))
    np.testing.assert_array_equal(out, np.full((10, 10, 3), 201, np.uint8))
