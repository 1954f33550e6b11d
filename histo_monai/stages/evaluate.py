"""Stage `evaluate`: two models, cheap arms -> metrics, pictures."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import image

from histo_monai import artifacts
from histo_monai.artifacts import Run
from histo_monai.assembly import Assembly
from histo_monai.engines.task import Task
from histo_monai.evaluation.arms import predict_arms
from histo_monai.evaluation.choice import read_choice
from histo_monai.evaluation.estimates import (
    Estimates,
    Predictions,
    differences,
    estimate,
    predict_splits,
)
from histo_monai.idle import NO_PATCHES, has_patches, leave_empty
from histo_monai.loading.labeled import LabeledLoader, spread
from histo_monai.networks.task_model import from_encoder
from histo_monai.params import load_params
from histo_monai.pictures.predictions import answers
from histo_monai.provenance import made_from, write_metrics
from histo_monai.reports import figures
from histo_monai.roles import MODELS, STUDENT
from histo_monai.storage import read_json, whole_folder
from histo_monai.tables.predictions import predictions_table, write_predictions
from histo_monai.tables.tasks import dependence_groups, of_one_group, split_rows

_LOG = logging.getLogger(__name__)

SPLITS = ("validation", "test")
NUM_BINS = 10
NUM_SHOWN = 24
HEADLINES = ("accuracy", "icc", "icc_a", "icc_b")
"""What summary.json tells of each split, and `dvc metrics show` prints; everything else is in metrics.json."""


def run(method: str, encoder: int, student: str, seed: int) -> None:
    """Write data/evaluation/<run>: predictions.csv, metrics.json, summary.json, plots/.

    Empty where no patch is labeled.
    """
    of_run = Run(method, encoder, seed, student)
    params = load_params(artifacts.PARAMS)
    if not has_patches():
        files, folders = (artifacts.PREDICTIONS,), (artifacts.PLOTS,)
        leave_empty(of_run.evaluation, params, NO_PATCHES, files=files, folders=folders)
        return
    assembly = Assembly.of(params)
    task = assembly.task
    rows = {split: split_rows(assembly.patches, split) for split in SPLITS}
    read = [
        artifacts.PATCHES_CSV,
        artifacts.LABELS_JSON,
        *of_run.models.values(),
        of_run.choice,
        of_run.encoder_path,
    ]
    labeled = assembly.labeled(of_run.derived_seed)
    provenance = made_from(params, read, [*rows.values(), labeled])
    models = assembly.load_run(of_run)
    choice = read_choice(of_run.choice)
    rows = {split: table for split, table in rows.items() if len(table)}
    loaders = {split: assembly.in_order(table) for split, table in rows.items()}
    networks = predict_splits(models, task, loaders)
    arms = predict_arms(
        from_encoder(of_run.encoder_path, task.num_outputs)[0].encoder,
        task,
        assembly.in_order(labeled),
        dependence_groups(labeled),
        loaders,
        networks,
    )
    predictions = {split: {**networks[split], **arms.predictions[split]} for split in rows}
    metrics: dict[str, Any] = {
        "choice": choice,
        "arms": {name: chosen.as_dict() for name, chosen in arms.chosen.items()},
    }
    for split, of_split in predictions.items():
        estimates = estimate(task, rows[split], of_split, seed=params.evaluate.seed)
        estimates["chosen"] = estimates[choice["chosen"]]
        estimates |= differences(task, rows[split], of_split, seed=params.evaluate.seed)
        metrics[split] = _plain(estimates)
    metrics["warnings"] = [
        *_warnings(artifacts.LABELS_JSON),
        *(warning for split, table in rows.items() for warning in of_one_group(table, split)),
    ]
    with whole_folder(of_run.evaluation) as draft:
        write_predictions(
            draft / artifacts.PREDICTIONS,
            [
                predictions_table(rows[split], of_split, task.classes)
                for split, of_split in predictions.items()
            ],
        )
        last = next(split for split in reversed(SPLITS) if split in predictions)
        _draw(draft / artifacts.PLOTS, task, rows[last], loaders[last], predictions[last])
        write_metrics(draft, metrics, provenance, summary=summarize(metrics))
    for name, value in summarize(metrics).items():
        _LOG.info("%s: %s", name, ", ".join(f"{model} {x:.3f}" for model, x in value.items()))


def summarize(metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The headline of every split: {"test_accuracy": {"student": 0.9, ...}, ...}."""
    return {
        f"{split}_{name}": {
            model: of_model[name]["value"]
            for model, of_model in metrics[split].items()
            if name in of_model and "_minus_" not in model
        }
        for split in SPLITS
        if split in metrics
        for name in HEADLINES
        if name in metrics[split][STUDENT]
    }


def _plain(estimates: Estimates) -> dict[str, dict[str, Any]]:
    return {
        model: {name: value.as_dict() for name, value in of_model.items()}
        for model, of_model in estimates.items()
    }


def _warnings(path: Path) -> list[str]:
    mend = "run the index stage again"
    warnings: list[str] = read_json(path, mend, {"warnings": [str]})["warnings"]
    return warnings


def _draw(
    folder: Path, task: Task, rows: pd.DataFrame, loader: LabeledLoader, predictions: Predictions
) -> None:
    """The pictures that `dvc plots show` opens: of the fine-tuned model and of the student."""
    folder.mkdir()
    both = {name: predictions[name] for name in MODELS}
    targets = loader.targets.numpy()
    if task.classes:
        decided = {name: values.argmax(axis=1) for name, values in both.items()}
        image.imsave(folder / "confusion.png", figures.confusion(targets, decided, task.classes))
        image.imsave(folder / "reliability.png", figures.reliability_diagram(targets, both, NUM_BINS))
    else:
        raters = {f"pathologist {rater.upper()}": rows[f"rater_{rater}"].to_numpy() for rater in "ab"}
        if rows["rater_a"].isna().any():
            raters = {"score": targets}
        for name, values in both.items():
            image.imsave(folder / f"scores_{name}.png", figures.scores(values[:, 0], raters))
    patches, wanted = loader.some(NUM_SHOWN)
    answered = both[STUDENT][spread(len(rows), NUM_SHOWN)]
    picture = answers(patches.squeeze(1).numpy(), answered, wanted.tolist(), task.classes)
    image.imsave(folder / artifacts.ANSWERS, picture)
