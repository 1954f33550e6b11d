"""Orders of rows in which few slides are read at a time."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from numpy.typing import NDArray

from histo_monai.data.loaders.batches import EpochBatches, ShuffledBatches
from histo_monai.data.loaders.order import BLOCK_ROWS, shuffled_order, slides_to_mix
from histo_monai.utils.randomness import generator

BATCH = 64


def rows_of(counts: list[int]) -> NDArray[np.int32]:
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def num_opened(slides: NDArray[np.int32], max_open: int) -> int:
    """Naively: slides that are not among those used last."""
    opened, last = 0, OrderedDict[int, None]()
    for slide in slides.tolist():
        opened += slide not in last
        last[slide] = None
        last.move_to_end(slide)
        if len(last) > max_open:
            last.popitem(last=False)
    return opened


def test_without_slides_it_is_the_order_that_the_generator_gives() -> None:
    order = shuffled_order(generator(3, "batches", 0), 1000, None, 4)
    np.testing.assert_array_equal(order, generator(3, "batches", 0).permutation(1000))


@pytest.mark.parametrize("counts", [[1], [5] * 400, [1000] * 40, [1, 129, 128, 7, 3000, 0, 64] * 30])
def test_every_row_comes_once_and_few_slides_at_a_time(counts: list[int]) -> None:
    slides, window = rows_of(counts), 8
    order = shuffled_order(np.random.default_rng(0), len(slides), slides, window)
    np.testing.assert_array_equal(np.sort(order), np.arange(len(slides)))
    num_blocks = sum(-(-count // BLOCK_ROWS) for count in counts)
    assert num_opened(slides[order], window) <= num_blocks


def test_the_order_is_a_function_of_the_generator_and_another_one_in_every_epoch() -> None:
    slides = rows_of([200] * 50)

    def epoch(number: int) -> list[list[int]]:
        batches = EpochBatches(len(slides), BATCH, seed=5, slides=slides)
        batches.set_epoch(number)
        return list(batches)

    assert epoch(0) == epoch(0)
    assert epoch(0) != epoch(1)
    stream = ShuffledBatches(len(slides), BATCH, seed=5, purpose="unlabeled", slides=slides)
    assert sorted(row for batch in stream for row in batch)[:5] == [0, 1, 2, 3, 4]


def test_what_a_batch_holds_is_near_to_a_random_draw_of_all_rows() -> None:
    """Half of the variance is the slides'. Truth: 500 (1 - (499 / 500)^64) slides in 64 draws of all rows. 64 draws of
    64 parts hold 40.6 of them and of 64 slides little less; two rows are of one part in a 64th of all pairs,
    and have half of their variance in common: 1 / 64 (1 + 63 / 64 / 2) for the mean, more for two parts of a slide.
    """
    rng = np.random.default_rng(0)
    slides = rows_of([300] * 500)
    value = rng.normal(size=500)[slides] + rng.normal(size=len(slides))
    for window, slides_of_a_batch, times in ((None, 60.2, 1.0), (64, 39.0, 1.55)):
        means, distinct, places = [], [], []
        for seed in range(4):
            draw = np.random.default_rng(seed)
            order = shuffled_order(draw, len(slides), None if window is None else slides, window or 1)
            batches = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)
            means.append(value[batches].mean(axis=1))
            distinct.append(np.mean([len(np.unique(slides[batch])) for batch in batches[::50]]))
            places.append(np.argsort(order))
        assert abs(np.mean(distinct) - slides_of_a_batch) < 1.0
        assert abs(np.var(np.concatenate(means)) / (value.var() / BATCH) - times) < 0.1
        mean_place = np.mean(places, axis=0) / len(slides)
        assert abs(mean_place[: 300 * 50].mean() - 0.5) < 0.05  # No slide comes early in every epoch.


def test_slides_are_opened_a_hundred_times_less_often() -> None:
    slides = rows_of([1000] * 200)
    orders = [
        shuffled_order(np.random.default_rng(0), len(slides), grouped, 64) for grouped in (None, slides)
    ]
    often, seldom = (num_opened(slides[order], 64) for order in orders)
    assert often > 0.6 * len(slides)
    assert seldom <= 200 * 8
    # Eight reading processes, each of which takes every eighth batch.
    batches = orders[1][: len(slides) // (8 * BATCH) * 8 * BATCH].reshape(-1, 8, BATCH)
    assert sum(num_opened(slides[batches[:, worker].ravel()], 64) for worker in range(8)) < 0.07 * len(slides)


def test_slides_are_mixed_only_where_it_pays() -> None:
    slides = rows_of([10] * 100)
    assert slides_to_mix(slides, max_open=64, num_cached=999) is slides
    assert slides_to_mix(slides, max_open=64, num_cached=1000) is None
    assert slides_to_mix(slides, max_open=100, num_cached=0) is None
    files = np.full(1000, -1, np.int32)
    assert slides_to_mix(files, max_open=64, num_cached=0) is None
