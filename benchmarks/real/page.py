"""Figures of all runs, and the page of them in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

import numpy as np

from histo_monai.evaluation.metrics import Resampling

from .figures import FEWEST_PATIENTS, METRICS, Replicates, crossed, difference, estimate
from .jobs import Bench, Job
from .rows import MINUS, Figure, table_rows
from .tasks import ALL_LABELS, TASKS, RealTask, read_patches, targets_of

_PART = (
    "--fresh --tasks glas-classes --budgets 60 --built-in imagenet --models color imagenet-means "
    "--cache data/part --csv data/part/real.csv --page data/part/real.md"
)


def figures_of(bench: Bench, jobs: Sequence[Job], pairs: Sequence[tuple[str, str]]) -> list[Figure]:
    """Every metric of every model and budget whose runs are all there, and paired differences of models.

    Args:
        bench: where predictions lie.
        jobs: that count.
        pairs: of models whose difference is of interest; those without both are left out.
    """
    figures: list[Figure] = []
    for name in dict.fromkeys(job.task for job in jobs):
        of_task = [job for job in jobs if job.task == name]
        for budget in dict.fromkeys(job.budget for job in of_task):
            of_budget = [job for job in of_task if job.budget == budget]
            pooled = _pooled(bench, TASKS[name], of_budget)
            for metric in TASKS[name].metrics:
                figures += _of_metric(bench, TASKS[name], metric, budget, pooled, pairs)
    return figures


def _pooled(bench: Bench, task: RealTask, jobs: Sequence[Job]) -> dict[str, list[np.ndarray]]:
    """Predictions of every patch, by model with all runs and by label subset; NaN where no fold tests the patch."""
    patches = read_patches(bench.real, task)
    pooled: dict[str, list[np.ndarray]] = {}
    for model in dict.fromkeys(job.model for job in jobs):
        of_model = [job for job in jobs if job.model == model]
        parts = [bench.read(job) for job in of_model]
        whole: dict[int, np.ndarray] = {}
        for job, part in zip(of_model, parts, strict=True):
            if part is not None:
                empty = np.full((len(patches), part.predictions.shape[1]), np.nan)
                whole.setdefault(job.subset, empty)[part.rows] = part.predictions
        if all(part is not None for part in parts):
            pooled[model] = list(whole.values())
    return pooled


def _of_metric(
    bench: Bench,
    task: RealTask,
    metric: str,
    budget: int,
    pooled: Mapping[str, list[np.ndarray]],
    pairs: Sequence[tuple[str, str]],
) -> list[Figure]:
    patches = read_patches(bench.real, task)
    targets, patients = targets_of(task, patches), patches["patient_id"].to_numpy(dtype=object)
    found: dict[str, Replicates] = {}
    resampling: Resampling | None = None
    num_subsets = 0
    for model, of_subsets in pooled.items():
        rows = np.isfinite(of_subsets[0][:, 0])
        found[model], resampling = crossed(
            METRICS[metric], targets[rows], patients[rows], [each[rows] for each in of_subsets]
        )
        num_subsets = len(of_subsets)
    if resampling is None:
        return []
    for first, second in pairs:
        if first in found and second in found:
            found[first + MINUS + second] = difference(found[first], found[second])
    named = "all" if budget == ALL_LABELS else str(budget)
    figures = []
    for model, replicates in found.items():
        known = estimate(replicates, resampling)
        value, low, high = (round(float(number), 4) for number in (known.value, known.low, known.high))
        figures.append(Figure(task.name, model, named, metric, value, low, high, known.n, num_subsets))
    return figures


def page(bench: Bench, jobs: Sequence[Job], figures: Sequence[Figure], options: str, commit: str) -> str:
    """The page: what was measured, how to repeat it, and one table per task."""
    done = sum(bench.read(job) is not None for job in jobs)
    seeds = _listed(sorted({job.subset for job in jobs}))
    lines = [
        "# Real tissue: few labels, patients left out",
        "",
        "Every number on this page is of patients that no training has used. The budget counts all labels. Penalty, "
        "depth and learner are chosen by cross-validation inside the budget. No model has further validation labels.",
        "",
        "Labels are a random subset of the training patients' patches. Each value is the mean over "
        "label subsets of the metric of all held-out predictions. The 95 % intervals resample patients and label "
        "subsets, crossed, in 2000 replicates. With nine patients such intervals are somewhat too narrow.",
        "",
        "## How to repeat it",
        "",
        "```bash",
        *(f"python -m benchmarks.real {what} {options}".rstrip() for what in ("plan", "run", "report")),
        "```",
        "",
        "`run` does what is missing, so it goes on after a stop. `--workers` sets the number of processes. `--networks "
        "finetuned` adds networks that are trained from each encoder, and `--encoder NAME=FILE` adds an encoder. "
        "The [log](research_log.md) describes the encoders given by file; these files are not in this repository.",
        "",
        "A part of the table, in a cache of its own and with no page of this folder overwritten:",
        "",
        "```bash",
        *(f"python -m benchmarks.real {what} {_PART}" for what in ("run", "report")),
        "```",
        "",
        "[`docs/real.csv`](real.csv) has all figures. The patches are for measuring only and are not in this "
        "repository. `--real FOLDER` names the folder of their zips; where some are missing, the command names them. "
        "Each zip holds images of one side, and tables with the columns path, patient_id, label or score, and mpp "
        "(`benchmarks/real/tasks.py`).",
        "",
        "## Runs that count",
        "",
        f"{date.today().isoformat()}, commit {commit}: {len(jobs)} runs count, {done} of them are done. A run is one "
        f"model on one task, budget, label subset and fold. Seeds of the label subsets: {seeds}. Seeds 0 to 4 "
        "choose between models and defaults. Seeds 100 to 104 serve one final report. A row is on this page only when "
        "all of its runs are done.",
        "",
    ]
    for name in dict.fromkeys(figure.task for figure in figures):
        lines += _of_task(bench, TASKS[name], [figure for figure in figures if figure.task == name])
    return "\n".join(lines).rstrip() + "\n"


def _of_task(bench: Bench, task: RealTask, figures: Sequence[Figure]) -> list[str]:
    num = figures[0].num_patients
    has_interval = num >= FEWEST_PATIENTS
    about = f"{num} {task.groups}, {task.num_folds} folds that keep {task.groups} apart."
    lines = [f"## {task.name}", "", about + ("" if has_interval else f" {num} patients: no test."), ""]
    budgets = list(dict.fromkeys(figure.budget for figure in figures))
    lines += ["| metric | model | " + " | ".join(f"{budget} labels" for budget in budgets) + " |"]
    lines += ["|---" * (len(budgets) + 2) + "|"]
    for metric in task.metrics:
        lines += table_rows([figure for figure in figures if figure.metric == metric], budgets)
    return [*lines, ""]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
