from __future__ import annotations

from collections import Counter

import pytest

from histo_monai.loading.streams import ShuffledBatches


def _rows(batches: ShuffledBatches, epoch: int) -> list[list[int]]:
    batches.set_epoch(epoch)
    return list(batches)


@pytest.mark.parametrize(
    ("rows", "size", "num"), [(10, 4, None), (10, 4, 9), (3, 8, None), (1, 2, 5), (8, 4, 2)]
)
def test_batches_are_full_and_every_row_comes_as_often_as_any_other_within_one(
    rows: int, size: int, num: int | None
) -> None:
    result = _rows(ShuffledBatches(rows, size, num_batches=num, seed=0, purpose="labeled"), 1)
    assert len(result) == (num or -(-rows // size))
    assert all(len(batch) == size for batch in result)
    counts = Counter(row for batch in result for row in batch)
    assert set(counts) == set(range(rows))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_each_pass_is_shuffled_anew() -> None:
    batches = _rows(ShuffledBatches(50, 50, num_batches=3, seed=0, purpose="unlabeled"), 1)
    assert all(sorted(batch) == list(range(50)) for batch in batches)
    assert len({tuple(batch) for batch in batches}) == 3


def test_order_is_a_function_of_seed_purpose_and_epoch() -> None:
    def order(epoch: int, seed: int = 0, purpose: str = "labeled") -> list[list[int]]:
        return _rows(ShuffledBatches(20, 5, seed=seed, purpose=purpose), epoch)

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1) != order(1, seed=1)
    assert order(1) != order(1, purpose="unlabeled")


def test_no_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="no labeled patch"):
        ShuffledBatches(0, 4, seed=0, purpose="labeled")
