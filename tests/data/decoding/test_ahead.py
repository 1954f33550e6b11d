"""Batches that a thread prepares: all of them, in order, with its errors, and no thread stays behind."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from histo_monai.data.decoding.ahead import AHEAD, prepared_ahead

JOBS = 20


def _tensor(number: int, device: torch.device) -> tuple[torch.Tensor, int]:
    if device.type == "cuda":
        torch.cuda._sleep(2_000_000)  # The tensor is filled later than it is given out.
    time.sleep(0.002 * (number % 3))  # Later jobs may end first.
    return torch.full((64, 64), number, device=device), number


def _stream(device: torch.device) -> torch.cuda.Stream | None:
    return torch.cuda.Stream(device) if device.type == "cuda" else None


def _threads() -> int:
    return sum(thread.name.startswith("decoding") for thread in threading.enumerate())


@pytest.mark.parametrize("threads", [1, 3])
def test_all_items_come_in_order(threads: int, device: torch.device) -> None:
    items = prepared_ahead(range(JOBS), lambda job: _tensor(job, device), _stream(device), threads)
    assert [(int(x.min()), int(x.max()), n) for x, n in items] == [(job, job, job) for job in range(JOBS)]
    assert _threads() == 0


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_comes_at_the_place_of_its_job(threads: int, device: torch.device) -> None:
    def prepare(job: int) -> tuple[torch.Tensor, int]:
        if job == 7:
            raise OSError("job 7")
        return _tensor(job, device)

    items = prepared_ahead(range(JOBS), prepare, _stream(device), threads)
    assert [next(items)[1] for _ in range(7)] == list(range(7))
    with pytest.raises(OSError, match="job 7"):
        next(items)
    assert _threads() == 0


def test_the_threads_end_when_the_iteration_is_given_up(device: torch.device) -> None:
    started = []

    def prepare(job: int) -> tuple[torch.Tensor, int]:
        started.append(job)
        return _tensor(job, device)

    items = prepared_ahead(range(100), prepare, _stream(device), 2)
    next(items)
    items.close()
    assert _threads() == 0
    assert len(started) <= 2 * AHEAD + 1
