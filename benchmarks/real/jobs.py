"""Independent trainings, one file of predictions each: what is missing runs, in one process or in several."""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from histo_monai.utils.storage import whole_file

from .models import BenchmarkModel, Problem
from .tasks import ALL_LABELS, TASKS, read_patches, split_rows

_LOG = logging.getLogger(__name__)

Work = TypeVar("Work")
Done = TypeVar("Done")


class Job(NamedTuple):
    """One training and its predictions of one fold."""

    task: str
    model: str
    budget: int
    subset: int
    fold: int

    def path(self, cache: Path) -> Path:
        """Its predictions."""
        name = f"{self.budget or 'all'}-{self.subset}-{self.fold}.npz"
        return cache / "predictions" / self.task / self.model / name


class Predicted(NamedTuple):
    """Predictions of one fold.

    Attributes:
        rows: of the dataset, Shape (n,).
        predictions: Shape (n, K).
        num_labels: that the model was given.
    """

    rows: NDArray[np.intp]
    predictions: NDArray[np.float64]
    num_labels: int


@dataclass(frozen=True)
class Bench:
    """Where data and results lie, and the models.

    Attributes:
        real: folder of the zips.
        cache: folder of encoders, features and predictions.
        models: by name.
    """

    real: Path
    cache: Path
    models: Mapping[str, BenchmarkModel]

    def jobs(self, tasks: Sequence[str], budgets: Sequence[int], subsets: Sequence[int]) -> list[Job]:
        """Every training that counts; all labels are one subset, so only the first subset has them."""
        return [
            Job(name, model, budget, subset, fold)
            for name in tasks
            for model, of_model in self.models.items()
            if of_model.is_for(TASKS[name])
            for budget in budgets
            for subset in (subsets[:1] if budget == ALL_LABELS else subsets)
            for fold in range(TASKS[name].num_folds)
        ]

    def key(self, job: Job) -> str:
        """Digest of all that decides a job's predictions; `read` refuses those of another."""
        about = [*map(str, job), self.models[job.model].digest(self.real, TASKS[job.task], job.fold)]
        return hashlib.sha256("\n".join(about).encode()).hexdigest()

    def read(self, job: Job) -> Predicted | None:
        """A job's predictions; None where it has not run, or ran with another encoder, data or settings."""
        path = job.path(self.cache)
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as arrays:
            if str(arrays["key"]) != self.key(job):
                return None
            return Predicted(arrays["rows"], arrays["predictions"], int(arrays["num_labels"]))

    def problem(self, job: Job) -> Problem:
        """What the job's model is given."""
        task = TASKS[job.task]
        patches = read_patches(self.real, task)
        split = split_rows(task, patches, job.fold, job.subset, job.budget)
        return Problem(self.real, self.cache, task, patches, job.fold, job.subset, split)

    def train(self, job: Job) -> None:
        """Run one job and save its predictions."""
        problem = self.problem(job)
        predictions = self.models[job.model].predict(problem)
        with whole_file(job.path(self.cache)) as draft:
            np.savez(
                draft,
                rows=problem.split.tested,
                predictions=predictions,
                num_labels=len(problem.split.labeled),
                key=self.key(job),
            )

    def run(self, jobs: Sequence[Job], workers: int) -> None:
        """Run what is missing; a run that was stopped goes on with the next job."""
        missing = [job for job in jobs if self.read(job) is None]
        _LOG.info("run: jobs=%d done=%d workers=%d", len(jobs), len(jobs) - len(missing), workers)
        for name, model, fold in dict.fromkeys((job.task, job.model, job.fold) for job in missing):
            self.models[model].prepare(self.real, self.cache, TASKS[name], fold)
        trained = over_processes(partial(_train_one, self), missing, workers)
        for number, job in enumerate(trained, start=1):
            _LOG.info("run: %d of %d: %s", number, len(missing), " ".join(map(str, job)))


def over_processes(work: Callable[[Work], Done], jobs: Sequence[Work], workers: int) -> Iterator[Done]:
    """Results as they come: of this process, or of several with one thread each."""
    if workers == 1:
        yield from map(work, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(workers, one_thread_each) as pool:
        yield from pool.imap_unordered(work, jobs)


def one_thread_each() -> None:
    """Let this process compute with one thread: torch, and the libraries below NumPy and scikit-learn."""
    torch.set_num_threads(1)
    threadpool_limits(1)


def _train_one(bench: Bench, job: Job) -> Job:
    bench.train(job)
    return job
