from __future__ import annotations

import numpy as np
import pytest

from histo_monai.reports.drawing import INK
from histo_monai.reports.suggestions import MAX_SHOWN, suggested


def _middle_of(picture: np.ndarray, gray: int) -> np.ndarray:
    """Middle (y, x) of the pixels of this gray."""
    return np.argwhere((picture == gray).all(axis=-1)).mean(axis=0)


def test_fields_stand_in_the_order_of_choice_row_after_row() -> None:
    grays = np.arange(10) * 12 + 4  # none is the bar's
    patches = np.ones((10, 3, 16, 16), np.uint8) * grays[:, None, None, None].astype(np.uint8)
    picture = suggested(patches, ["slide"] * 10, ["tumor 0.52"] * 10, [64.0] * 10)
    places = np.array([_middle_of(picture, gray) for gray in grays])
    assert (np.diff(places[:8, 1]) > 100).all()
    assert np.ptp(places[:8, 0]) < 3
    assert places[8:, 0].min() > places[:8, 0].max() + 100
    np.testing.assert_allclose(places[8:, 1], places[:2, 1], atol=2)


def test_more_than_fit_are_left_out_and_long_names_do_not_change_the_picture_s_size() -> None:
    patches = np.zeros((MAX_SHOWN + 5, 3, 8, 8), np.uint8)
    names = ["x" * 80] * len(patches)
    many, short = (
        suggested(patches, names, names, [64.0] * len(names)),
        suggested(patches[:MAX_SHOWN], ["x"] * 200, ["y"] * 200, [64.0] * 200),
    )
    assert many.shape == short.shape


def test_the_bar_of_a_larger_region_is_shorter() -> None:
    picture = suggested(np.full((2, 3, 16, 16), 128, np.uint8), ["", ""], ["", ""], [64.0, 256.0])
    is_ink = (picture[:180] == [int(INK[i : i + 2], 16) for i in (1, 3, 5)]).all(axis=-1)
    bars = [part.sum(axis=1).max() for part in (is_ink[:, :150], is_ink[:, 150:300])]
    assert bars[1] > 8
    assert bars[0] == pytest.approx(4 * bars[1], rel=0.2)
