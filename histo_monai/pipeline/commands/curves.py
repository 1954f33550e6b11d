"""Command `curves`: all experiments -> metrics against labels, mu and n_aug; labels saved; csv tables and a page."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from histo_monai.data.tables.predictions import Predictions, check_same_patches, read_predictions
from histo_monai.evaluation.comparison.sweep import (
    Member,
    curve_points,
    labels_for_score,
    main_setting,
    of_setting,
    power_laws,
    saved_labels,
)
from histo_monai.pipeline import paths
from histo_monai.pipeline.experiments import Experiment, Experiments, Family, families, read_experiments
from histo_monai.pipeline.params import load_params, parse_params
from histo_monai.pipeline.paths import runs
from histo_monai.reports.site.assets import PAGE, without_libraries, write_page
from histo_monai.reports.site.sweeps.family import FamilyTables
from histo_monai.reports.site.sweeps.page import TITLE, LeftOut, subtitle, sweep_sections
from histo_monai.reports.site.vendor import found
from histo_monai.utils.errors import InputError
from histo_monai.utils.roles import FINETUNED, STUDENT
from histo_monai.utils.storage import own_folder

_LOG = logging.getLogger(__name__)

_TABLES = ("points", "runs", "labels_saved", "labels_needed", "power_laws")
NO_LIBRARIES = without_libraries("charts", "histo-monai curves")


def run(*, all_commits: bool, score: float | None) -> None:
    """Write data/curves: index.html, and a csv of each of `_TABLES`.

    Experiments of a family differ only in alpha, mu, n_aug, pretraining and semi-supervised methods, and seeds.

    Args:
        all_commits: include experiments of other commits.
        score: target score of labels_needed.csv; None for the best score of any model, per metric.

    Raises:
        InputError: no experiment has finished, or its file is not in cache or remote.
    """
    params = load_params(paths.PARAMS)
    experiments = read_experiments(all_commits=all_commits)
    for name in experiments.failed:
        _LOG.warning(
            "curves: experiment=%s excluded, it failed; `dvc queue logs %s` shows the reason", name, name
        )
    if experiments.waiting:
        _LOG.warning("curves: unfinished experiments excluded: %s", ", ".join(experiments.waiting))
    if not experiments.done:
        raise InputError(
            "experiments: none has finished. Fix: run one, e.g. `dvc exp run -S alpha=0.25`, or give --all-commits"
        )
    libraries = found()
    warnings = [] if libraries else [NO_LIBRARIES]
    found_families = families(experiments.done)
    with own_folder(paths.CURVES_OF_EXPERIMENTS, [paths.PARAMS]) as folder:
        tables = []
        for family in found_families:
            _LOG.info(
                "curves: family=%s experiments=%d%s", family.name, len(family.experiments), family.differences
            )
            preferred = (float(params.mu), float(params.n_aug))
            tables.append(_family_tables(family, preferred, params.compare.num_replicates, score))
        for name in _TABLES:
            table = pd.concat([getattr(of_family, name) for of_family in tables])
            table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
        left_out = _left_out(experiments)
        sections = sweep_sections(tables, _used(found_families), left_out, warnings)
        below = subtitle(tables, len(experiments.done), len(left_out))
        write_page(folder, TITLE, below, sections, libraries)
    for line in warnings:
        _LOG.warning("%s", line)
    _LOG.info("curves: page=%s", paths.CURVES_OF_EXPERIMENTS / PAGE)


def _left_out(experiments: Experiments) -> list[LeftOut]:
    failed = [(name, f"it failed; `dvc queue logs {name}` shows the reason") for name in experiments.failed]
    return failed + [(name, "it has not finished") for name in experiments.waiting]


def _used(found_families: Sequence[Family]) -> list[dict[str, str | float]]:
    """Swept params of each experiment, for the page."""
    rows: list[dict[str, str | float]] = []
    for family in found_families:
        for experiment in family.experiments:
            params = parse_params(experiment.params)
            rows.append(
                {"experiment": experiment.name, "commit": experiment.rev[:7], "family": family.name}
                | {"alpha": params.alpha, "mu": params.mu, "n_aug": params.n_aug}
                | {
                    name: ", ".join(map(str, getattr(params, name)))
                    for name in ("pretraining_methods", "semisupervised_methods", "training_seeds")
                }
            )
    return rows


def _family_tables(
    family: Family, preferred: tuple[float, float], num_replicates: int, score: float | None
) -> FamilyTables:
    with tempfile.TemporaryDirectory() as scratch:
        members, patches = _members(family.experiments, Path(scratch) / paths.PREDICTIONS)
    points = curve_points(
        members,
        patches.references,
        patches.groups,
        seed=family.params.compare.seed,
        num_replicates=num_replicates,
    )
    setting = main_setting(points, preferred)
    chosen = of_setting(points, *setting)
    about = {"family": family.name, "dataset": family.params.dataset, "split": patches.splits[-1]}
    table = pd.DataFrame([about | point.row() for point in points])
    of_runs = pd.DataFrame([about | row for point in points for row in point.run_rows()])
    saved, needed, laws = [], [], []
    for metric in table["metric"].unique():
        of_metric = [
            point for point in chosen if point.metric == metric and np.isfinite(point.estimate.value)
        ]
        if not of_metric:  # undefined, such as an AUC of one class
            continue
        best = max(point.estimate.value for point in of_metric) if score is None else score
        saved.append(saved_labels(of_metric, metric))
        needed.append(labels_for_score(of_metric, metric, best))
        laws.append(power_laws(of_metric, metric))
    completed = (pd.concat(tables).assign(**about) for tables in (saved, needed, laws))
    return FamilyTables(family.name, family.differences, setting, table, of_runs, *completed)


def _members(experiments: Sequence[Experiment], scratch: Path) -> tuple[list[Member], Predictions]:
    """Models of all experiments, and the patches that all of them predict: test patches, else validation patches."""
    members: list[Member] = []
    first: Predictions | None = None
    for experiment in experiments:
        params = parse_params(experiment.params)
        for run in runs(params.pretraining_methods, params.semisupervised_methods, params.repeats):
            experiment.fetch(run.evaluation / paths.PREDICTIONS, scratch)
            table = read_predictions(scratch)
            patches = table.of_split(table.splits[-1])
            first = first or patches
            _check_held_out(first, patches)
            check_same_patches(first, patches)
            trained = (run.finetuned / paths.SUMMARY).as_posix()
            if trained not in experiment.metrics:
                raise InputError(
                    f"experiment {experiment.name}: {trained} is missing, as the version differs. Fix: "
                    f"`dvc exp remove {experiment.name}`"
                )
            counts = experiment.metrics[trained]
            num_labels = counts.get("num_labels", counts["num_labeled"])  # Labels for selection count, too.
            of_student = experiment.metrics.get((run.student_folder / paths.SUMMARY).as_posix(), {})
            diagnoses = of_student.get("num_diagnoses", 0)  # A diagnosis counts as a label.
            alpha, repeat = params.alpha, (run.encoder, run.seed)
            finetuned, student = (patches.predictions[name] for name in (FINETUNED, STUDENT))
            members += [
                Member(run.method, "finetune", repeat, alpha, num_labels, np.nan, np.nan, finetuned),
                Member(
                    run.method,
                    run.student,
                    repeat,
                    alpha,
                    num_labels + diagnoses,
                    params.mu,
                    params.n_aug,
                    student,
                ),
            ]
    assert first is not None
    return members, first


def _check_held_out(first: Predictions, second: Predictions) -> None:
    """Refuse experiments that are cross-validated: each predicts the patches of its own labels.

    Raises:
        InputError: The patches are of no test, and differ.
    """
    names = [set(patches.rows["patch_id"]) for patches in (first, second)]
    if "test" not in first.splits and names[0] != names[1]:
        raise InputError(
            "experiments: without test patches each is measured on its own labels, and curves need equal patches. Fix: "
            "mark some patients as test (column split), run the experiments again, or give all alpha and seeds equal"
        )
