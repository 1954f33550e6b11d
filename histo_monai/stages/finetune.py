"""Stage `finetune`: an encoder and a fraction of the labels -> a model of the task."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ignite.distributed as idist
import numpy as np
import torch
from matplotlib import image

from histo_monai import artifacts
from histo_monai.artifacts import Run
from histo_monai.assembly import (
    Assembly,
    TrainingRows,
    label_counts,
    validation_metrics,
    write_fold_models,
)
from histo_monai.engines.events import write_end
from histo_monai.engines.fit import Records
from histo_monai.engines.ranks import run_in_ranks
from histo_monai.engines.resume import fingerprint
from histo_monai.engines.supervised import FinetuneResult
from histo_monai.environment import read_environment
from histo_monai.evaluation.cross_validation import CrossValidated, cross_validate
from histo_monai.finetuning import finetune_encoder, without_validation
from histo_monai.idle import NO_PATCHES, has_patches, leave_empty
from histo_monai.imports import stage_sha256
from histo_monai.networks.checkpoint import save_model
from histo_monai.networks.task_model import TaskModel
from histo_monai.params import Params, load_params
from histo_monai.params.selection import selected
from histo_monai.pictures.predictions import answers
from histo_monai.provenance import made_from, without_ids, write_metrics
from histo_monai.randomness import derive_seed
from histo_monai.roles import FINETUNED
from histo_monai.storage import whole_folder
from histo_monai.tables.label_folds import LabelFolds

_LOG = logging.getLogger(__name__)

PARAM_NAMES = (
    "dataset",
    "alpha",
    "patch_px",
    "cross_validation",
    "whole_slides",
    "finetune.recipe",
    "finetune.${dataset}",
    "evaluate.batch_size",
)
"""What decides the result, as in dvc.yaml."""


def run(method: str, encoder: int, seed: int) -> None:
    """Write data/models/<run>/finetuned: model, folds/, metrics.json, summary.json, curves.csv, answers.png.

    Without separate validation patches the labels select by cross-validation, patients apart, and the model learns from
    all of them afterwards. folds/ holds its models, which map the slides that they have not learned from. Empty where
    no patch is labeled.
    """
    of_run = Run(method, encoder, seed)
    params = load_params(artifacts.PARAMS)
    if not has_patches():
        files = (artifacts.MODEL, artifacts.CURVES, artifacts.ANSWERS)
        leave_empty(of_run.finetuned, params, NO_PATCHES, files=files, folders=(artifacts.FOLDS,))
        return
    run_in_ranks(_train, of_run, params, **read_environment().in_ranks)


@dataclass(frozen=True)
class _Stage:
    """One run in one process.

    Attributes:
        run: which.
        assembly: of the experiment.
        rows: what it learns from.
        folds: of the patients.
        decided_by: plain values that decide the result.
    """

    run: Run
    assembly: Assembly
    rows: TrainingRows
    folds: LabelFolds
    decided_by: list[Any]

    @property
    def seed(self) -> int:
        return derive_seed(self.run.derived_seed, "finetune")

    def events(self, fold: int | None = None) -> Path:
        """Folder of TensorBoard's files."""
        return artifacts.tensorboard_folder("finetune", artifacts.training_name(self.run, fold))

    def checkpoint(self, fold: int | None = None) -> Path:
        """State of an unfinished training."""
        return artifacts.checkpoint_path(f"finetune-{artifacts.training_name(self.run, fold)}")

    def train(
        self, fold: int | None = None, candidate: float | None = None
    ) -> tuple[TaskModel, dict[str, Any], FinetuneResult]:
        """Fine-tune with all labels, or without those of a fold."""
        key = [*self.decided_by, fold, candidate]
        return finetune_encoder(
            self.assembly,
            self.run.encoder_path,
            self.rows if fold is None else self.rows.without(self.folds, fold),
            seed=self.seed if fold is None else derive_seed(self.seed, "fold", fold),
            picture=partial(answers, classes=self.assembly.task.classes),
            records=Records(
                self.events(fold),
                self.checkpoint(fold),
                fingerprint(key, [artifacts.PATCHES_CSV, self.run.encoder_path], stage_sha256("finetune")),
            ),
            selected=candidate,
        )

    def cross_validate(
        self,
    ) -> tuple[CrossValidated[TaskModel, FinetuneResult] | None, list[dict[str, Any]]]:
        """Models without each fold, and their descriptions; None where there are no folds."""
        if not self.folds.num:
            _LOG.warning("%s", self.folds.why_none)
            return None, []
        described: list[dict[str, Any]] = []

        def train(fold: int) -> tuple[TaskModel, FinetuneResult]:
            model, description, result = self.train(fold)
            described.append(description)
            return model, result

        validated = cross_validate(
            self.folds, self.rows.labeled, train, self.assembly.predictions, self.assembly.task.objective.rank
        )
        if self.rows.validation.empty:
            _LOG.info("cross-validation on %d labels selects %g", len(self.rows.labeled), validated.selected)
        return validated, described


class _Course(NamedTuple):
    """What is shown of a training: measured on patches that it did not learn from, where there are any."""

    validation: Mapping[str, float]
    curves: list[dict[str, float]]
    picture: np.ndarray


def _train(device: torch.device, of_run: Run, params: Params) -> None:
    """In each process; the first writes."""
    assembly = Assembly.of(params, device)
    rows = assembly.rows(of_run.derived_seed, with_unlabeled=False)
    used = [rows.labeled, rows.validation]
    provenance = made_from(params, [artifacts.PATCHES_CSV, of_run.encoder_path], used)
    folds = assembly.folds(rows, of_run.derived_seed)
    stage = _Stage(of_run, assembly, rows, folds, [*of_run, selected(params, PARAM_NAMES)])
    section = params.finetune_section(assembly.task.kind)
    is_counted = rows.validation.empty
    validated, described = stage.cross_validate() if is_counted or _is_mapped(params, of_run) else (None, [])
    candidate = None
    if is_counted:
        candidate = validated.selected if validated else without_validation(section)
    model, description, result = stage.train(candidate=candidate)
    if idist.get_rank() > 0:
        return
    course = _Course(result.validation, result.curves, result.picture)
    if is_counted and validated:
        course = _Course(validated.validation, validated.curves, validated.results[0].picture)
    metrics = {
        **validation_metrics(course.validation),
        "best_epoch": result.best_epoch,
        **({} if result.line is None else {"start_share": result.line.start_weight}),
        **label_counts(rows),
        "num_folds": len(described),
    }
    about = {
        "stage": "finetune",
        "encoder_seed": of_run.encoder,
        "seed": of_run.seed,
        "metrics": metrics,
        "params": dataclasses.asdict(section),
        "provenance": without_ids(provenance),
    }
    with whole_folder(of_run.finetuned) as folder:
        save_model(folder / artifacts.MODEL, model.state_dict(), {**description, **about})
        of_folds = [{**of_fold, **about} for of_fold in described]
        names = assembly.task.classes
        write_fold_models(
            folder / artifacts.FOLDS, FINETUNED, folds, rows.labeled, validated, of_folds, names
        )
        artifacts.write_curves(folder / artifacts.CURVES, course.curves, _columns(course))
        image.imsave(folder / artifacts.ANSWERS, course.picture)
        warnings = [folds.why_none] if is_counted and folds.why_none else []
        write_metrics(folder, {**metrics, "warnings": warnings}, provenance, summary=metrics)
    write_end(stage.events(), assembly.hyperparameters(of_run), metrics)
    for fold in (None, *range(folds.num)):
        stage.checkpoint(fold).unlink(missing_ok=True)
    _LOG.info(
        "%s written: %s", of_run.finetuned, ", ".join(f"{name} {value:g}" for name, value in metrics.items())
    )


def _columns(course: _Course) -> list[str] | None:
    """Those of curves without an epoch; others bring their own."""
    return None if course.curves else ["epoch", "lr", *(f"validation_{name}" for name in course.validation)]


def _is_mapped(params: Params, of_run: Run) -> bool:
    """Whether a student of this model maps slides: those that were learned from are mapped by the folds' models."""
    return any(params.is_mapped_by(of_run.method, of_run.encoder, student) for student in params.students)
