"""Decode regions in several threads of this process, in order; cuCIM and OpenSlide decode without Python's lock.

The default is one thread, also in every forked process: a training has many reading processes already.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

Place = TypeVar("Place")
Region = TypeVar("Region")

_AHEAD = 4
"""Decoded regions in waiting, per thread."""


class _Process:
    """This process's threads."""

    num = 1
    pool: ThreadPoolExecutor | None = None


def _forget_in_child() -> None:
    _Process.num, _Process.pool = 1, None


os.register_at_fork(after_in_child=_forget_in_child)


def sleep_when_idle() -> None:
    """Let idle threads of torch sleep; call it before importing torch.

    By default, GNU's OpenMP spins for milliseconds at full load on cores that reading processes need. A user's own
    setting stays.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def decode_with(threads: int) -> None:
    """Set the number of decoding threads of this process, at least 1; pixels do not change."""
    if threads != _Process.num and _Process.pool is not None:
        _Process.pool.shutdown()
        _Process.pool = None
    _Process.num = threads


def in_order(decode: Callable[[Place], Region], places: Sequence[Place]) -> Generator[Region]:
    """Results of `decode` in order, computed a few places ahead to bound memory.

    An error is raised at its region's turn, after the threads have ended.
    """
    if _Process.num == 1 or len(places) == 1:
        yield from map(decode, places)
        return
    if _Process.pool is None:
        _Process.pool = ThreadPoolExecutor(_Process.num, thread_name_prefix="decode")
    waiting: deque[Future[Region]] = deque()
    try:
        for place in places:
            waiting.append(_Process.pool.submit(decode, place))
            if len(waiting) > _AHEAD * _Process.num:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        wait(waiting)
