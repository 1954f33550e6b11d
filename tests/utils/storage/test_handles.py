from __future__ import annotations

import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import HandlePool


class _Handle:
    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 4))
def test_open_are_the_keys_asked_for_last(keys: list[int], max_open: int) -> None:
    pool: HandlePool[int, _Handle] = HandlePool(max_open)
    opened: list[tuple[int, _Handle]] = []

    def opener(key: int) -> _Handle:
        opened.append((key, _Handle()))
        return opened[-1][1]

    for number, key in enumerate(keys):
        handle = pool.get(key, lambda key=key: opener(key))
        assert handle.is_open
        last = list(dict.fromkeys(reversed(keys[: number + 1])))[:max_open]
        assert sorted(key for key, one in opened if one.is_open) == sorted(last)
    pool.close()
    assert len(pool) == 0
    assert not any(one.is_open for _, one in opened)


def test_what_cannot_be_opened_is_asked_for_again() -> None:
    pool: HandlePool[str, _Handle] = HandlePool(1)

    def refuse() -> _Handle:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        pool.get("a", refuse)
    assert len(pool) == 0
    assert pool.get("a", _Handle).is_open


def test_a_forked_child_starts_without_handles_and_closes_none_of_its_parent() -> None:
    pool: HandlePool[str, _Handle] = HandlePool(2)
    mine = pool.get("a", _Handle)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            own = pool.get("a", _Handle)
            pool.close()
            status = 0 if own is not mine and mine.is_open and not own.is_open else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.get("a", _Handle) is mine


def test_a_pool_pickles_without_its_handles() -> None:
    pool: HandlePool[str, _Handle] = HandlePool(3)
    pool.get("a", _Handle)
    copy = pickle.loads(pickle.dumps(pool))
    assert (copy.max_open, len(copy)) == (3, 0)


def test_a_pool_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="max_open: got 0"):
        HandlePool(0)
