"""Stage `evaluate --method METHOD --seed SEED`: fine-tuned model and student -> predictions, metrics, pictures."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import image

from histo_monai import artifacts
from histo_monai.engines.choice import read_choice
from histo_monai.engines.evaluation import (
    Estimates,
    Predictions,
    differences,
    estimate,
    predict_splits,
)
from histo_monai.engines.labeled import LabeledTask, some_patches, spread
from histo_monai.environment import read_environment
from histo_monai.errors import InputError
from histo_monai.networks.task_model import from_task_model
from histo_monai.params import load_params
from histo_monai.pictures.predictions import answers
from histo_monai.provenance import made_from, write_metrics
from histo_monai.reports import figures
from histo_monai.storage import read_json, whole_folder
from histo_monai.tables.patches import read_patches
from histo_monai.tables.predictions import predictions_table, write_predictions
from histo_monai.tables.splits import labeled_rows
from histo_monai.tables.tasks import of_one_group, split_rows, task_targets

_LOG = logging.getLogger(__name__)

SPLITS = ("validation", "test")
NUM_BINS = 10
NUM_SHOWN = 24
HEADLINES = ("accuracy", "icc", "icc_a", "icc_b")
"""What summary.json tells of each split, and `dvc metrics show` prints; everything else is in metrics.json."""


def run(method: str, seed: int) -> None:
    """Write data/evaluation/<method>-<seed>: predictions.csv, metrics.json, summary.json, plots/."""
    params = load_params(artifacts.PARAMS)
    environment = read_environment()
    environment.use_cpus()
    task = LabeledTask(
        read_patches(artifacts.PATCHES_CSV),
        patch_px=params.patch_px,
        workers=environment.workers,
        device=environment.device,
    )
    folders = {
        "finetuned": artifacts.finetuned_folder(method, seed),
        "student": artifacts.student_folder(method, seed),
    }
    provenance = made_from(
        params,
        [
            *(artifacts.PATCHES_CSV, artifacts.LABELS_JSON),
            *(folder / artifacts.MODEL for folder in folders.values()),
            folders["student"] / artifacts.CHOICE,
        ],
        [split_rows(task.patches, split) for split in SPLITS],
    )
    models = {}
    for name, folder in folders.items():
        models[name], description = from_task_model(folder / artifacts.MODEL)
        task.check_fits(description, folder / artifacts.MODEL)
    choice = read_choice(folders["student"] / artifacts.CHOICE)
    labeled = labeled_rows(task.patches, params.alpha)
    predictions = predict_splits(models, task, labeled, SPLITS, params.evaluate.batch_size)
    rows = {split: split_rows(task.patches, split) for split in predictions}
    metrics: dict[str, Any] = {"choice": choice}
    for split, said in predictions.items():
        found = estimate(task, rows[split], said, seed=params.evaluate.seed)
        found["chosen"] = found[choice["chosen"]]
        found |= differences(task, rows[split], said, seed=params.evaluate.seed)
        metrics[split] = _plain(found)
    metrics["warnings"] = [
        *_warnings(artifacts.LABELS_JSON),
        *(warning for split, table in rows.items() for warning in of_one_group(table, split)),
    ]
    folder = artifacts.evaluation_folder(method, seed)
    with whole_folder(folder) as draft:
        write_predictions(
            draft / artifacts.PREDICTIONS,
            [predictions_table(rows[split], said, task.classes) for split, said in predictions.items()],
        )
        last = next(split for split in reversed(SPLITS) if split in predictions)
        _draw(draft / artifacts.PLOTS, task, rows[last], predictions[last])
        write_metrics(draft, metrics, provenance, summary=summarise(metrics))
    for name, value in summarise(metrics).items():
        _LOG.info("%s: %s", name, ", ".join(f"{model} {x:.3f}" for model, x in value.items()))


def summarise(metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The headline of every split: {"test_accuracy": {"student": 0.9, ...}, ...}."""
    return {
        f"{split}_{name}": {
            model: found[name]["value"]
            for model, found in metrics[split].items()
            if name in found and "_minus_" not in model
        }
        for split in SPLITS
        if split in metrics
        for name in HEADLINES
        if name in metrics[split]["student"]
    }


def _plain(estimates: Estimates) -> dict[str, dict[str, Any]]:
    return {
        model: {name: value.as_dict() for name, value in found.items()} for model, found in estimates.items()
    }


def _warnings(path: Path) -> list[str]:
    mend = "run the index stage again"
    warnings = read_json(path, mend, keys=("warnings",))["warnings"]
    if not isinstance(warnings, list) or not all(isinstance(warning, str) for warning in warnings):
        raise InputError(f"{path}: warnings is {repr(warnings)[:80]}, expected a list of texts; {mend}")
    return warnings


def _draw(folder: Path, task: LabeledTask, rows: pd.DataFrame, predictions: Predictions) -> None:
    """The pictures that `dvc plots show` opens: of the fine-tuned model and of the student."""
    folder.mkdir()
    both = {name: predictions[name] for name in ("finetuned", "student")}
    targets = task_targets(rows, task.classes).numpy()
    if task.classes:
        decided = {name: said.argmax(axis=1) for name, said in both.items()}
        image.imsave(folder / "confusion.png", figures.confusion(targets, decided, task.classes))
        image.imsave(folder / "reliability.png", figures.reliability_diagram(targets, both, NUM_BINS))
    else:
        raters = {f"pathologist {rater.upper()}": rows[f"rater_{rater}"].to_numpy() for rater in "ab"}
        if rows["rater_a"].isna().any():
            raters = {"score": targets}
        for name, said in both.items():
            image.imsave(folder / f"scores_{name}.png", figures.scores(said[:, 0], raters))
    some = spread(len(rows), NUM_SHOWN)
    patches = some_patches(task.in_order(rows, NUM_SHOWN).loader, NUM_SHOWN).squeeze(1).numpy()
    picture = answers(patches, both["student"][some], targets[some].tolist(), task.classes)
    image.imsave(folder / artifacts.ANSWERS, picture)
