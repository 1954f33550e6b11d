from __future__ import annotations

import gc

import pytest

from histo_monai.utils.process import garbage
from histo_monai.utils.process.garbage import lasting


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage._Process, "is_frozen", False)  # another test may have called a stage


def test_what_was_made_is_not_searched_and_what_comes_later_is() -> None:
    gc.unfreeze()
    try:
        with lasting():
            assert not gc.isenabled()
            made: list[list[int]] = [[] for _ in range(1000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() >= len(made)
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        assert gc.collect() >= 1
    finally:
        gc.unfreeze()


def test_a_second_time_keeps_no_garbage_of_what_ran_between() -> None:
    gc.unfreeze()
    try:
        with lasting():
            pass
        kept = gc.get_freeze_count()
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        with lasting():
            assert not gc.isenabled()
        assert gc.get_freeze_count() <= kept  # fewer where what was kept is let go
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
