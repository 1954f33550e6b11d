"""Write many files in several processes; their number does not change the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cv2
from threadpoolctl import threadpool_limits

from histo_monai.utils.process.forks import end_opencv_threads_before_forks
from histo_monai.utils.process.processes import map_over_processes

end_opencv_threads_before_forks()

Job = tuple[Callable[..., Any], tuple[Any, ...]]


def run_jobs(jobs: Sequence[Job], processes: int, title: str) -> list[Any]:
    """Call every job, `processes` at a time, with a progress bar on stderr.

    Args:
        jobs: Module-level functions with their arguments; they must be picklable and independent.
        processes: Parallel calls; 1 runs in this process.

    Returns:
        The results in the order of the jobs.
    """
    # spawn: the caller may hold threads (torch, cuCIM) that do not survive a fork.
    return list(map_over_processes(_call, jobs, processes=processes, title=title, unit="file", start="spawn"))


def _call(job: Job) -> Any:
    function, arguments = job
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        with threadpool_limits(1):
            return function(*arguments)
    finally:
        cv2.setNumThreads(threads)
