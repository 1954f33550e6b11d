"""`benchmarks.real.surroundings`: the square around a patch of a picture, mirrored where the picture ends."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.real.surroundings import around

SIDE = 4


@pytest.mark.parametrize(("row", "column"), [(1, 1), (0, 0), (2, 1), (1, 2)])
def test_the_field_is_cut_from_the_mirrored_picture(row: int, column: int) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (3 * SIDE, 3 * SIDE, 3), np.uint8)
    mosaic = {
        (y, x): picture[y * SIDE : (y + 1) * SIDE, x * SIDE : (x + 1) * SIDE]
        for y in range(3)
        for x in range(3)
    }
    mirrored = np.pad(picture, ((SIDE, SIDE), (SIDE, SIDE), (0, 0)), mode="symmetric")
    top, left = (SIDE + number * SIDE - SIDE // 2 for number in (row, column))
    expected = mirrored[top : top + 2 * SIDE, left : left + 2 * SIDE]
    np.testing.assert_array_equal(around(mosaic, row, column), expected)
