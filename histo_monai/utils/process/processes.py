"""Many files, several processes or machines, one progress bar; results in the order of the files."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, Literal, TypeVar

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
) -> Iterator[Result]:
    """Call `work` with the first of each column, the second of each, and so on: here or, see `cluster`, elsewhere.

    Args:
        work: a function of a module, or a `partial` of one; gives the same for the same arguments in any process.
        columns: the arguments, of one length.
        processes: calls made at the same time; 1 stays in this process.
        sizes: how many units each call handles; None: one.
        start: "spawn" where this process has run a network or read a slide before: threads and handles of these do not
            survive a fork.
    """
    num = len(columns[0])
    sizes = [1] * num if sizes is None else sizes
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(progress(total=sum(sizes), title=title, unit=unit))
        results: Iterator[Result] = map(work, *columns)
        address = cluster_address()
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


_is_working = _is_stopped = False


def _mind_ctrl_c() -> None:
    """It reaches every process of a terminal: who asked for the work says so, those that work break off in silence.

    Who waits for work stays: the others would be ended before they have put away what they had begun to write.
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
