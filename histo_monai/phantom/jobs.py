"""Runs the writing of many files over processes; the files do not depend on how many there are."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import cv2
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tqdm import tqdm

from histo_monai.forks import end_opencv_threads_before_forks

end_opencv_threads_before_forks()

Job = tuple[Callable[..., Any], tuple[Any, ...]]


def run_jobs(jobs: Sequence[Job], processes: int, title: str) -> list[Any]:
    """Calls every job, `processes` at a time, under a progress bar on stderr.

    Args:
        jobs: Module-level functions with their arguments; they must be picklable and independent.
        processes: How many at a time; 1 stays in this process.
        title: Of the progress bar.

    Returns:
        The results in the order of the jobs.
    """
    results: list[Any] = [None] * len(jobs)
    with tqdm(total=len(jobs), desc=title, unit="file", dynamic_ncols=True) as bar:
        if processes == 1 or len(jobs) == 1:
            for index, job in enumerate(jobs):
                results[index] = _call(job)
                bar.update()
            return results
        # spawn: the caller may hold threads (torch, cuCIM) that do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(processes, len(jobs)), mp_context=context) as pool:
            futures = {pool.submit(_call, job): index for index, job in enumerate(jobs)}
            try:
                for future in as_completed(futures):
                    results[futures[future]] = future.result()
                    bar.update()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    return results


def _call(job: Job) -> Any:
    function, arguments = job
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        with threadpool_limits(1):
            return function(*arguments)
    finally:
        cv2.setNumThreads(threads)
