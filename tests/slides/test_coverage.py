from __future__ import annotations

import numpy as np
import pytest

from histo_monai.slides import coverage
from histo_monai.slides.coverage import Weights, mean_bands


def covered_fraction(start: float, scale: float, output: int, pixel: int) -> float:
    """Of an output that a pixel makes, by the definition."""
    begin, end = start + output * scale, start + (output + 1) * scale
    return max(0.0, min(end, pixel + 1) - max(begin, pixel)) / scale


def reduced(fields, starts_yx, scale_yx, size_yx):
    """Results of all fields, (fields, height, width, 3), put together from bands."""
    results = np.zeros((len(fields), *size_yx, 3), np.uint8)
    for number, rows, levels in mean_bands(iter(fields), fields[0].shape[:2], starts_yx, scale_yx, size_yx):
        assert not results[number, rows].any()  # each row once
        results[number, rows] = levels.transpose(2, 0, 1)
    return results


@pytest.mark.parametrize("scale", [0.95, 1.0104, 1.5, 2.0, 3.7, 9.2])
def test_weights_are_the_fractions_of_the_area(scale):
    starts = np.array([0.0, 0.3, 1.97])
    weights = Weights(starts, scale, 7, 80)
    for number, start in enumerate(starts):
        truth = [
            [covered_fraction(start, scale, output, pixel) for pixel in range(80)] for output in range(7)
        ]
        some = slice(2, 5)
        first = weights.first(number, some)
        matrix = weights.matrix(number, some, first, 40).toarray()
        np.testing.assert_allclose(matrix, np.array(truth)[some, first : first + 40], atol=1e-6)


def test_weights_sum_to_one_also_where_the_field_leaves_the_image():
    weights = Weights(np.array([-0.7]), 1.3, 12, 10).matrix(0, slice(0, 12), 0, 10).toarray()
    inside = weights.sum(1) > 0
    np.testing.assert_allclose(weights[inside].sum(1), 1, atol=1e-6)
    assert inside[:8].all()
    assert not inside[9:].any()


@pytest.mark.parametrize("scale", [0.95, 1.0104, 1.5, 3.7])
def test_a_pixel_is_the_same_whatever_is_made_beside_it(scale, monkeypatch):
    rng = np.random.default_rng(0)
    fields = [rng.integers(0, 256, (90, 71, 3), np.uint8) for _ in range(3)]
    starts = [(0.2, 0.9), (1.75, 0.0), (-3.4, 60.3)]  # the last one leaves the field
    together = reduced(fields, starts, (scale, scale), (21, 13))
    monkeypatch.setattr(coverage, "_BAND_BYTES", 1)
    monkeypatch.setattr(coverage, "_FEW_ROWS", 4)
    in_bands = reduced(fields, starts, (scale, scale), (21, 13))
    np.testing.assert_array_equal(together, in_bands)
    for field, start, one in zip(fields, starts, together, strict=True):
        np.testing.assert_array_equal(reduced([field], [start], (scale, scale), (21, 13))[0], one)


def test_a_wide_field_is_reduced_in_bands_of_bounded_memory():
    field, bands = np.zeros((64, 30_000, 3), np.uint8), []
    for _, rows, levels in mean_bands([field], (64, 30_000), [(0.0, 0.0)], (2.0, 4.0), (32, 7500)):
        bands.append(rows)
        assert 12 * 30_000 * 2 * levels.shape[2] <= 4 * 2**20
    assert [row for rows in bands for row in range(rows.start, rows.stop)] == list(range(32))
