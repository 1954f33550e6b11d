"""Order of whole numbers, by counting and by comparing."""

from __future__ import annotations

import numpy as np
import pytest

from histo_monai.data.tables.counting import stable_order


@pytest.mark.parametrize(("low", "high"), [(0, 5), (0, 2**16), (0, 2**16 + 1), (-3, 3), (2**40, 2**40 + 4)])
def test_numbers_are_in_order_and_equal_ones_as_they_stand(low: int, high: int) -> None:
    numbers = np.r_[np.random.default_rng(0).integers(low, high, 5000), high - 1, low, high - 1]
    assert stable_order(numbers).tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)


def test_of_nothing_there_is_no_order() -> None:
    assert stable_order(np.array([], np.int64)).tolist() == []
