from __future__ import annotations

import gc

import pytest

from histo_monai.process.garbage import lasting


def test_what_was_made_is_not_searched_and_what_comes_later_is() -> None:
    before = gc.get_freeze_count()
    try:
        with lasting():
            assert not gc.isenabled()
            made: list[list[int]] = [[] for _ in range(1000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(made)
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        assert gc.collect() >= 1
    finally:
        gc.unfreeze()


def test_an_error_ends_it_too() -> None:
    try:
        with pytest.raises(OSError, match="gone"), lasting():
            raise OSError("gone")
        assert gc.isenabled()
    finally:
        gc.unfreeze()
