"""Batches prepared by threads, on another CUDA stream, while the device works on earlier ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

AHEAD = 2
"""Batches that each thread prepares before one is taken."""

Job = TypeVar("Job")
Rest = TypeVar("Rest")


def prepared_ahead(
    jobs: Iterable[Job],
    prepare: Callable[[Job], tuple[torch.Tensor, Rest]],
    stream: torch.cuda.Stream | None,
    threads: int = 1,
) -> Generator[tuple[torch.Tensor, Rest]]:
    """A tensor on the device, with something beside it, for each job, in order.

    An error is raised at the place of its job. The threads end when the iteration ends or is given up.

    Args:
        prepare: Runs in a thread, with `stream` as its current one.
        stream: CUDA stream of the threads; None on a CPU.
    """

    def run(job: Job) -> tuple[torch.Tensor, Rest, torch.cuda.Event | None]:
        with torch.cuda.stream(stream):
            tensor, rest = prepare(job)
            return tensor, rest, None if stream is None else stream.record_event()

    waiting: deque[Future[tuple[torch.Tensor, Rest, torch.cuda.Event | None]]] = deque()
    left = iter(jobs)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="decoding")
    try:
        while True:
            while len(waiting) < AHEAD * threads:
                try:
                    job = next(left)
                except StopIteration:
                    break
                waiting.append(pool.submit(run, job))
            if not waiting:
                return
            tensor, rest, event = waiting.popleft().result()
            if event is not None:
                current = torch.cuda.current_stream(tensor.device)
                current.wait_event(event)
                tensor.record_stream(current)
            yield tensor, rest
    finally:
        pool.shutdown(cancel_futures=True)
