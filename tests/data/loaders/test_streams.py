from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from histo_monai.data.loaders.batches import ShuffledBatches, WeightedBatches


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
    with pytest.raises(ValueError, match="labeled: no patch"):
        ShuffledBatches(0, 4, seed=0, purpose="labeled")


def test_rows_are_drawn_by_their_chances_and_batches_are_full() -> None:
    chances = np.array([0.5, 0.0, 0.25, 0.125, 0.125])
    batches = WeightedBatches(chances, 8, num_batches=1000, seed=0, purpose="unlabeled")
    batches.set_epoch(1)
    drawn = list(batches)
    assert len(drawn) == len(batches) == 1000
    assert {len(batch) for batch in drawn} == {8}
    seen = np.bincount(np.concatenate(drawn), minlength=5) / 8000
    spread = np.sqrt(chances * (1 - chances) / 8000)
    assert (np.abs(seen - chances) <= 4 * spread).all()
    assert list(batches) == drawn
    batches.set_epoch(2)
    assert list(batches) != drawn


def test_processes_draw_parts_of_the_same_batches() -> None:
    chances = np.full(10, 0.1)
    whole, *parts = (
        list(
            WeightedBatches(
                chances, 6, num_batches=4, seed=3, purpose="unlabeled", rank=rank, world_size=world_size
            )
        )
        for rank, world_size in ((0, 1), (0, 2), (1, 2))
    )
    assert [first + second for first, second in zip(*parts, strict=True)] == whole
