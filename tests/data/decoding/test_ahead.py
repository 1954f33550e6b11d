"""Batches that a thread prepares: all of them, in order, with its errors, and no thread stays behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from histo_monai.data.decoding.ahead import AHEAD, prepared_ahead


def _numbers(num: int, device: torch.device, fails_at: int = -1) -> Iterator[tuple[torch.Tensor, int]]:
    for number in range(num):
        if number == fails_at:
            raise OSError(f"item {number}")
        if device.type == "cuda":
            torch.cuda._sleep(2_000_000)  # The tensor is filled later than it is given out.
        yield torch.full((64, 64), number, device=device), number


def _stream(device: torch.device) -> torch.cuda.Stream | None:
    return torch.cuda.Stream(device) if device.type == "cuda" else None


def _threads() -> int:
    return sum(thread.name == "decoding" for thread in threading.enumerate())


def test_all_items_come_in_order(device: torch.device) -> None:
    got = [
        (int(x.min()), int(x.max()), n)
        for x, n in prepared_ahead(lambda: _numbers(20, device), _stream(device))
    ]
    assert got == [(number, number, number) for number in range(20)]
    assert _threads() == 0


def test_an_error_comes_after_the_items_before_it(device: torch.device) -> None:
    items = prepared_ahead(lambda: _numbers(20, device, fails_at=7), _stream(device))
    assert [next(items)[1] for _ in range(7)] == list(range(7))
    with pytest.raises(OSError, match="item 7"):
        next(items)
    assert _threads() == 0


def test_the_thread_waits_for_who_takes_its_items_and_ends_with_him(device: torch.device) -> None:
    made = []

    def make() -> Iterator[tuple[torch.Tensor, int]]:
        for tensor, number in _numbers(100, device):
            made.append(number)
            yield tensor, number

    items = prepared_ahead(make, _stream(device))
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert _threads() == 0
    assert len(made) <= AHEAD + 3
