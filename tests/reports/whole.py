"""What holds of every picture of the reports."""

from __future__ import annotations

import numpy as np


def assert_nothing_is_cut_off(picture: np.ndarray) -> None:
    """Shape (H, W, 3), uint8: white all around, and something inside."""
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3
    edges = (picture[0], picture[-1], picture[:, 0], picture[:, -1])
    assert all((edge == 255).all() for edge in edges), "something is cut off"
    assert picture.std() > 10
