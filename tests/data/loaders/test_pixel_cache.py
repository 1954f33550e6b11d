from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from numpy.typing import NDArray

from histo_monai.data.loaders.pixel_cache import PixelCache

SHAPE = (3, 5, 5)


class Reader:
    """Pixels that are a function of the row, and what was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        self.asked += rows.tolist()
        return _pixels(rows)


def _pixels(rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    return np.stack([np.random.default_rng(row).integers(0, 256, SHAPE, np.uint8) for row in rows])


def test_each_row_is_read_once_and_comes_in_the_order_asked() -> None:
    cache, read = PixelCache(40, SHAPE), Reader()
    batches = np.random.default_rng(0).integers(0, 40, (30, 7))  # some twice in one batch
    for rows in batches:
        np.testing.assert_array_equal(cache.get(rows, read), _pixels(rows))
    assert sorted(read.asked) == np.unique(batches).tolist()


def test_no_more_is_cached_than_fits() -> None:
    cache, read = PixelCache(40, SHAPE, max_bytes=10 * 75 + 74), Reader()
    assert cache.num == 10
    for _ in range(2):
        np.testing.assert_array_equal(cache.get(np.arange(40), read), _pixels(np.arange(40)))
    assert read.asked == [*range(40), *range(10, 40)]


@pytest.mark.parametrize("max_bytes", [0, 74])
def test_the_cache_may_be_empty(max_bytes: int) -> None:
    cache, read = PixelCache(4, SHAPE, max_bytes), Reader()
    rows = np.array([3, 1, 3])
    np.testing.assert_array_equal(cache.get(rows, read), _pixels(rows))
    np.testing.assert_array_equal(cache.get(rows, read), _pixels(rows))
    assert read.asked == [1, 3, 1, 3]


def test_what_comes_out_is_a_copy() -> None:
    cache, read = PixelCache(4, SHAPE), Reader()
    cache.get(np.arange(4), read)[:] = 0
    np.testing.assert_array_equal(cache.get(np.arange(4), read), _pixels(np.arange(4)))


def test_a_forked_process_fills_it_for_all() -> None:
    cache = PixelCache(8, SHAPE)
    child = os.fork()
    if child == 0:
        cache.get(np.arange(4), Reader())
        os._exit(0)
    os.waitpid(child, 0)
    read = Reader()
    np.testing.assert_array_equal(cache.get(np.arange(8), read), _pixels(np.arange(8)))
    assert read.asked == [4, 5, 6, 7]


def test_a_spawned_process_begins_with_nothing() -> None:
    cache, read = PixelCache(8, SHAPE), Reader()
    cache.get(np.arange(8), read)
    sent = pickle.loads(pickle.dumps(cache))
    np.testing.assert_array_equal(sent.get(np.arange(8), read), _pixels(np.arange(8)))
    assert len(read.asked) == 16
    assert len(pickle.dumps(cache)) < 500


def test_an_error_leaves_nothing_behind() -> None:
    cache = PixelCache(4, SHAPE)

    def fail(rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        cache.get(np.arange(4), fail)
    read = Reader()
    np.testing.assert_array_equal(cache.get(np.arange(4), read), _pixels(np.arange(4)))
    assert len(read.asked) == 4
