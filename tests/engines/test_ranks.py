"""Ranks that hang or die end the run, within the time that is allowed, in one line."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import ignite.distributed as idist
import pytest
import torch

from histo_monai.__main__ import _one_line
from histo_monai.engines.ranks import RankHungError, note_step, run_in_ranks

CPU = torch.device("cpu")


def _note(rank: int, folder: str) -> None:
    Path(folder, f"{rank}-of-{idist.get_world_size()}").touch()


def _waits_for_one_that_sleeps(rank: int) -> None:
    if rank == 1:
        time.sleep(600)
    idist.barrier()


def _sleeps_and_nobody_waits(rank: int) -> None:
    if rank == 1:
        time.sleep(600)


def _is_slow_but_steady(rank: int) -> None:
    for _ in range(8):
        time.sleep(0.25)
        note_step()


def _is_killed(rank: int) -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def _is_wrong(rank: int) -> None:
    raise ValueError(f"slide {rank}.tif: truncated")


def test_each_rank_does_its_part(tmp_path: Path) -> None:
    run_in_ranks(_note, str(tmp_path), device=CPU, ranks=2, timeout_s=60, start="fork")
    assert {path.name for path in tmp_path.iterdir()} == {"0-of-2", "1-of-2"}


@pytest.mark.parametrize("work", [_waits_for_one_that_sleeps, _sleeps_and_nobody_waits])
def test_a_rank_that_sleeps_forever_ends_the_run_in_one_line(work: object) -> None:
    start = time.monotonic()
    with pytest.raises(Exception, match=r".") as caught:  # what is raised depends on who gives up first
        run_in_ranks(work, device=CPU, ranks=2, timeout_s=2, start="fork")  # type: ignore[arg-type]
    line = _one_line(caught.value)
    assert line is not None
    assert "\n" not in line
    assert "HISTO_MONAI_TIMEOUT_S" in line
    assert time.monotonic() - start < 300  # and not the 600 s of the sleep


def test_nobody_waits_without_end_where_ranks_do_not_meet() -> None:
    with pytest.raises(RankHungError, match=r"process 1 made no step for 2 s and was ended, with the run"):
        run_in_ranks(_sleeps_and_nobody_waits, device=CPU, ranks=2, timeout_s=2, start="fork")


def test_a_run_may_take_longer_than_a_step() -> None:
    run_in_ranks(_is_slow_but_steady, device=CPU, ranks=2, timeout_s=1.5, start="fork")


def test_a_rank_that_is_killed_ends_the_run_in_one_line() -> None:
    with pytest.raises(Exception, match="SIGKILL") as caught:
        run_in_ranks(_is_killed, device=CPU, ranks=2, timeout_s=60, start="fork")
    assert (
        "a training process was killed (process 1 terminated with signal SIGKILL), mostly for lack of"
        in str(_one_line(caught.value))
    )


def test_an_error_of_a_rank_keeps_its_words() -> None:
    with pytest.raises(Exception, match="truncated") as caught:
        run_in_ranks(_is_wrong, device=CPU, ranks=2, timeout_s=60, start="fork")
    assert _one_line(caught.value) in ("slide 0.tif: truncated", "slide 1.tif: truncated")
