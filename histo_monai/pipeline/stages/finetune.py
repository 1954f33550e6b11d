"""Stage `finetune`: encoder, or its stored features, and a fraction of the labels -> task model."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib import image

from histo_monai.data.tables.label_folds import LabelFolds
from histo_monai.evaluation.conformal import calibration
from histo_monai.evaluation.cross_validation import CrossValidated
from histo_monai.evaluation.doubtful import doubtful_table
from histo_monai.models.checkpoint import save_model
from histo_monai.models.layers import merged_state
from histo_monai.pipeline import paths
from histo_monai.pipeline.context import (
    Assembly,
    TrainingRows,
    label_counts,
    run_training,
    validation_metrics,
    write_fold_models,
)
from histo_monai.pipeline.frozen import HeadTraining
from histo_monai.pipeline.imports import stage_sha256
from histo_monai.pipeline.params import Params, load_params, needs_fold_models
from histo_monai.pipeline.params.selection import selected
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.provenance import made_from, without_ids, write_metrics
from histo_monai.pipeline.references import references
from histo_monai.pipeline.skip import NO_PATCHES, has_patches, leave_empty
from histo_monai.training.events import write_end
from histo_monai.training.pictures.predictions import answers
from histo_monai.training.resume import fingerprint
from histo_monai.utils.process.garbage import lasting
from histo_monai.utils.process.precision import computes_in_bfloat16
from histo_monai.utils.randomness import derive_seed
from histo_monai.utils.ranks import this_rank
from histo_monai.utils.roles import FINETUNED
from histo_monai.utils.storage import whole_folder

if TYPE_CHECKING:  # Importing what trains networks takes seconds, which heads on stored features save.
    from histo_monai.pipeline.finetuning import Finetuning

_LOG = logging.getLogger(__name__)

PARAM_NAMES = (
    "dataset",
    "alpha",
    "patch_px",
    "cross_validation",
    "slide_level",
    "finetune.mode",
    "finetune.head",
    "finetune.recipe",
    "finetune.paper",
    "evaluate.batch_size",
    "features.depth",
    "features.field",
)
"""Params of the stage in dvc.yaml."""


def run(method: str, encoder: int, seed: int) -> None:
    """Write data/models/<run>/finetuned: model, folds/, metrics.json, summary.json, curves.csv, answers.png.

    Without separate validation patches, cross-validation by patient selects, and the final model learns from all
    labels. folds/ holds the cross-validation models, which map the training slides. The outputs are empty if no patch
    is labeled. In the mode "head" no patch is encoded: heads are fitted to data/features.
    """
    of_run = Run(method, encoder, seed)
    params = load_params(paths.PARAMS)
    if not has_patches():
        files = (paths.MODEL, paths.CURVES, paths.ANSWERS)
        leave_empty(of_run.finetuned, params, NO_PATCHES, files=files, folders=(paths.FOLDS,))
        return
    run_training(_train, of_run, params)


class _Course(NamedTuple):
    """Curves and metrics on held-out patches, if there are any."""

    validation: Mapping[str, float]
    curves: list[dict[str, float]]
    picture: np.ndarray


def _train(device: torch.device, of_run: Run, params: Params) -> None:
    """Train in each process; process 0 writes."""
    assembly = Assembly.of(params, device)
    is_head = params.finetune.mode == "head"
    rows = assembly.rows(of_run.derived_seed, with_unlabeled=is_head)
    used = [rows.labeled, rows.validation, *([rows.unlabeled] if is_head else [])]
    folds = assembly.folds(rows, of_run.derived_seed)
    is_counted = rows.validation.empty
    with_folds = is_counted or needs_fold_models(params, of_run.method)
    training: Finetuning | HeadTraining
    read = [paths.PATCHES_CSV, of_run.encoder_path]
    if is_head:
        training = HeadTraining.of_run(assembly, of_run, rows, folds)
        read += training.read
    else:
        training = _finetuning(assembly, of_run, rows, folds)
    provenance = made_from(params, read, used)
    validated, described = training.cross_validate() if with_folds else (None, [])
    model, description, result = training.train(candidate=training.candidate(validated))
    if this_rank() > 0:
        return
    if is_counted and validated:
        course = _Course(validated.validation, validated.curves, validated.results[0].picture)
    else:
        course = _Course(result.validation, result.curves, result.picture)
    metrics = {
        **validation_metrics(course.validation),
        "best_epoch": result.best_epoch,
        **({"interpolation_weight": at.start_weight} if (at := result.interpolation) else {}),
        **label_counts(rows),
        "num_folds": len(described),
    }
    about = {
        "stage": "finetune",
        "encoder_seed": of_run.encoder,
        "seed": of_run.seed,
        "metrics": metrics,
        "params": dataclasses.asdict(assembly.finetune_section),
        "provenance": without_ids(provenance),
    }
    with whole_folder(of_run.finetuned) as folder:
        reference = references(training if isinstance(training, HeadTraining) else assembly)
        state = {**merged_state(model), **reference(model, rows.labeled)}
        names = assembly.task.classes
        whole = description | about | calibration(rows.labeled, validated, names)
        save_model(folder / paths.MODEL, state, whole)
        of_folds = [{**of_fold, **about} for of_fold in described]
        write_fold_models(
            folder / paths.FOLDS, FINETUNED, folds, rows.labeled, validated, of_folds, model, names, reference
        )
        _write_doubtful(folder / paths.FOLDS, training, rows.labeled, validated, names)
        paths.write_curves(folder / paths.CURVES, course.curves, _columns(course))
        image.imsave(folder / paths.ANSWERS, course.picture)
        warnings = [folds.why_none] if is_counted and folds.why_none else []
        write_metrics(folder, {**metrics, "warnings": warnings}, provenance, summary=metrics)
    write_end(_events(of_run), assembly.hyperparameters(of_run), metrics)
    for fold in (None, *range(folds.num)):
        _checkpoint(of_run, fold).unlink(missing_ok=True)
    in_words = ", ".join(f"{name} {value:g}" for name, value in metrics.items())
    _LOG.info("finetune: output=%s %s", of_run.finetuned, in_words)


def _write_doubtful(
    folder: Path,
    training: Finetuning | HeadTraining,
    labeled: pd.DataFrame,
    validated: CrossValidated[Any, Any] | None,
    classes: list[str] | None,
) -> None:
    """Write doubtful.csv, if the labels were cross-validated."""
    if validated is None:
        return
    neighbors = training.neighbors() if isinstance(training, HeadTraining) else None
    table = doubtful_table(labeled, validated.predictions, classes, neighbors)
    table.to_csv(folder / paths.DOUBTFUL, index=False, float_format="%.6g")


def _finetuning(assembly: Assembly, of_run: Run, rows: TrainingRows, folds: LabelFolds) -> Finetuning:
    """All trainings of the run."""
    with lasting():
        from histo_monai.pipeline.finetuning import Finetuning
        from histo_monai.training.fit import Records

    values = [*of_run, selected(assembly.params, PARAM_NAMES), computes_in_bfloat16(assembly.task.device)]
    read = [paths.PATCHES_CSV, of_run.encoder_path]

    def records(fold: int | None, candidate: float | None) -> Records:
        key = fingerprint([*values, fold, candidate], read, stage_sha256("finetune"))
        return Records(_events(of_run, fold), _checkpoint(of_run, fold), key)

    return Finetuning(
        assembly,
        of_run.encoder_path,
        rows,
        folds,
        derive_seed(of_run.derived_seed, "finetune"),
        partial(answers, classes=assembly.task.classes),
        records,
    )


def _events(of_run: Run, fold: int | None = None) -> Path:
    return paths.tensorboard_folder("finetune", paths.training_name(of_run, fold))


def _checkpoint(of_run: Run, fold: int | None = None) -> Path:
    return paths.checkpoint_path(f"finetune-{paths.training_name(of_run, fold)}")


def _columns(course: _Course) -> list[str] | None:
    """Column names of curves without an epoch; None otherwise."""
    return None if course.curves else ["epoch", "lr", *(f"validation_{name}" for name in course.validation)]
