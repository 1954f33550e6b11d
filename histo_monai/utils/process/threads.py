"""Regions that several threads of this process decode, in the order asked for: cuCIM decodes without Python's lock.

One thread at first, and in every process that is forked: those that read for a training are many already.
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
"""Regions that wait to be taken, for each thread."""


class _Process:
    """This process's threads."""

    num = 1
    pool: ThreadPoolExecutor | None = None


def _forget_in_child() -> None:
    _Process.num, _Process.pool = 1, None


os.register_at_fork(after_in_child=_forget_in_child)


def sleep_when_idle() -> None:
    """From now on torch's threads that have nothing to do sleep after a moment: to be called before torch is imported.

    GNU's OpenMP lets them look for work for milliseconds, at full load, on cores that processes that
    read need. What the user has set for it stays.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def decode_with(threads: int) -> None:
    """From now on this process decodes slides in so many threads; no pixel changes.

    Args:
        threads: at least 1.
    """
    if threads != _Process.num and _Process.pool is not None:
        _Process.pool.shutdown()
        _Process.pool = None
    _Process.num = threads


def in_order(decode: Callable[[Place], Region], places: Sequence[Place]) -> Generator[Region]:
    """What `decode` gives for each place; a few places ahead of who takes it, never all of them in memory.

    An error is raised where its region would have come, after the threads have ended.
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
