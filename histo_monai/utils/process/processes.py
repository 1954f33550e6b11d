"""Map a function over files, in several processes or machines, with one progress bar and in order."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, Literal, TypeVar

from threadpoolctl import threadpool_limits

from histo_monai.utils.process.cluster import cluster_address, map_over_cluster
from histo_monai.utils.process.progress import progress

Result = TypeVar("Result")


def map_over_processes(
    work: Callable[..., Result],
    *columns: Sequence[Any],
    processes: int,
    title: str,
    unit: str,
    sizes: Sequence[int] | None = None,
    start: Literal["fork", "spawn"] = "fork",
    over_cluster: bool = True,
) -> Iterator[Result]:
    """Results of `work` for the i-th entries of all columns, in order, from processes or a `cluster`.

    Args:
        work: A function of a module, or a `partial` of one; deterministic in any process.
        columns: Arguments, all of one length.
        processes: Parallel calls; 1 runs in this process.
        sizes: Units per call; None: one.
        start: Use "spawn" after this process ran a network or read a slide: their threads and handles do not survive a
            fork.
        over_cluster: Whether the workers of a cluster may do it; False: this machine.
    """
    num = len(columns[0])
    sizes = [1] * num if sizes is None else sizes
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(progress(total=sum(sizes), title=title, unit=unit))
        results: Iterator[Result] = map(work, *columns)
        address = cluster_address() if over_cluster else ""
        if address and num:
            results = map_over_cluster(work, columns, address)
        elif processes > 1 and num > 1:
            context = multiprocessing.get_context(start)
            pool = stack.enter_context(
                ProcessPoolExecutor(min(processes, num), mp_context=context, initializer=_mind_ctrl_c)
            )
            results = pool.map(partial(_until_ctrl_c, work), *columns)
        for size, result in zip(sizes, results, strict=True):
            bar.update(size)
            yield result


def on_one_core(work: Callable[..., Result], *arguments: Any) -> Result:
    """Result of a function that computes with one thread: libraries add up floats in the order of one core.

    Matrices of hundreds of rows are computed faster so, and several processes do not take each other's cores.
    """
    with threadpool_limits(1):
        return work(*arguments)


_is_working = _is_stopped = False


def _mind_ctrl_c() -> None:
    """Handle Ctrl-C, which reaches every process of a terminal: a working process stops silently.

    An idle process stays: the pool would end the others before they remove unfinished files.
    """

    def stop(*_: object) -> None:
        global _is_stopped
        _is_stopped = True
        if _is_working:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)


def _until_ctrl_c(work: Callable[..., Result], *arguments: Any) -> Result:
    global _is_working
    if _is_stopped:
        raise KeyboardInterrupt
    _is_working = True
    try:
        return work(*arguments)
    finally:
        _is_working = False
