"""Many files, several processes, one progress bar; results in the order of the files."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, Literal, TypeVar

from tqdm import tqdm

Result = TypeVar("Result")


def map_over_processes(
    work: Callable[..., Result],
    *columns: Sequence[Any],
    processes: int,
    title: str,
    unit: str,
    start: Literal["fork", "spawn"] = "fork",
) -> Iterator[Result]:
    """Call `work` with the first of each column, the second of each, and so on.

    Args:
        work: a function of a module, or a `partial` of one; gives the same for the same arguments in any process.
        columns: the arguments, of one length.
        processes: calls made at the same time; 1 stays in this process.
        title: of the progress bar.
        unit: what one call handles.
        start: "spawn" where this process has run a network or read a slide before: threads and handles of these do not
            survive a fork.
    """
    bar = partial(tqdm, total=len(columns[0]), desc=title, unit=unit)
    if processes == 1 or len(columns[0]) < 2:
        yield from bar(map(work, *columns))
        return
    context = multiprocessing.get_context(start)
    with ProcessPoolExecutor(min(processes, len(columns[0])), mp_context=context) as pool:
        yield from bar(pool.map(work, *columns))
