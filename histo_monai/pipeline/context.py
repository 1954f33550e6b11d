"""Common parts of all stages after pretraining: params, patches, networks, loaders.

A stage reads an `Assembly`, trains (`finetuning`, `teaching`) or predicts with it, and writes files.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from histo_monai.data.loaders.labeled import LabeledLoader, PatchReading
from histo_monai.data.tables.label_folds import LabelFolds, deal_folds, write_folds
from histo_monai.data.tables.patches import read_patches
from histo_monai.data.tables.predictions import predictions_table, write_predictions
from histo_monai.data.tables.splits import labeled_rows, with_label_ranks
from histo_monai.data.tables.tasks import split_rows, task_classes
from histo_monai.evaluation.cross_validation import CrossValidated, Result, cross_validate
from histo_monai.models.checkpoint import save_model
from histo_monai.models.layers import has_adapters
from histo_monai.models.sharing.folds import WholeModel, adapters_alone, head_alone
from histo_monai.models.task_model import MIXTURE, TaskModel, from_task_model
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import Environment, read_environment, torchrun_rank
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.params.head_sections import HeadParams
from histo_monai.pipeline.params.sections import FinetuneRecipe, TrainingParams
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.references import Reference
from histo_monai.semisupervised.settings import StudentRecipe
from histo_monai.training.device import tensors_on
from histo_monai.training.events import Hyperparameters
from histo_monai.training.prediction import over_patches, predict
from histo_monai.training.ranks import run_in_ranks
from histo_monai.training.schedule import Schedule
from histo_monai.training.task import Task
from histo_monai.utils.randomness import generator
from histo_monai.utils.ranks import num_ranks, this_rank
from histo_monai.utils.settings.recipe import Recipe

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingRows:
    """Patch rows of a training.

    Attributes:
        labeled: training patches in the label budget.
        train: all training patches, labeled ones included; labels outside the budget are not read.
        unlabeled: `train` and, if requested, the rows of unlabeled.csv; the student trains on them.
        validation: measured after each epoch; empty if cross-validation selects.
    """

    labeled: pd.DataFrame
    train: pd.DataFrame
    unlabeled: pd.DataFrame
    validation: pd.DataFrame

    def without(self, folds: LabelFolds, fold: int) -> TrainingRows:
        """Rows without the patients of a fold; its labeled patches are the validation if there is no separate one."""
        held_out = self.labeled[folds.of(self.labeled) == fold].reset_index(drop=True)
        labeled, train, unlabeled = (
            table[folds.of(table) != fold].reset_index(drop=True)
            for table in (self.labeled, self.train, self.unlabeled)
        )
        return TrainingRows(labeled, train, unlabeled, self.validation if len(self.validation) else held_out)


@dataclass(frozen=True)
class Assembly:
    """Params, patches, task and loaders of an experiment on this machine.

    Attributes:
        patches: all splits, with `data.tables.columns.PATCH_COLUMNS`.
        reading: makes loaders from rows.
    """

    params: Params
    environment: Environment
    patches: pd.DataFrame
    task: Task
    reading: PatchReading

    @classmethod
    def read(cls) -> Self:
        """Assembly from params.yaml, the environment and data/index/patches.csv.

        Raises:
            InputError: one of them cannot be used.
        """
        return cls.of(load_params(paths.PARAMS))

    @classmethod
    def of(cls, params: Params, device: torch.device | None = None) -> Self:
        """Assembly from loaded params.

        Args:
            device: this process's device in a training on several GPUs; None for the environment's device.

        Raises:
            InputError: the environment or the patches cannot be used.
        """
        environment = read_environment()
        environment = dataclasses.replace(environment, device=device or environment.device)
        environment.use_cpus(num_ranks())
        patches = read_patches(paths.PATCHES_CSV)
        task = Task(task_classes(patches), patch_px=params.input_px, device=environment.device)
        reading = PatchReading(params.patch_px, task.classes, environment.workers, task.device)
        return cls(params, environment, patches, task, reading)

    def rows(self, seed: int, *, with_unlabeled: bool) -> TrainingRows:
        """Patch rows of the trainings with a seed; `with_unlabeled` adds data/index/unlabeled.csv.

        Raises:
            InputError: no patch is labeled, or a file cannot be used.
        """
        known = with_label_ranks(self.patches, seed)
        more = [read_patches(paths.UNLABELED_CSV)] if with_unlabeled else []
        train = split_rows(known, "train")
        return TrainingRows(
            labeled_rows(known, self.params.alpha),
            train,
            pd.concat([train, *more], ignore_index=True),
            split_rows(known, "validation"),
        )

    def folds(self, rows: TrainingRows, seed: int) -> LabelFolds:
        """Patient folds for cross-validation on the labels."""
        num = self.params.cross_validation.num_folds
        return deal_folds(rows.train, rows.labeled, num, generator(seed, "label folds"))

    def labeled(self, seed: int) -> pd.DataFrame:
        """Training patches in the label budget of a seed.

        Raises:
            InputError: the budget is empty or misses a class.
        """
        return labeled_rows(with_label_ranks(self.patches, seed), self.params.alpha)

    def in_order(self, rows: pd.DataFrame) -> LabeledLoader:
        """Loader of every row once, in order, for prediction."""
        return self.reading.in_order(rows, self.params.evaluate.batch_size)

    def validation(self, rows: pd.DataFrame) -> LabeledLoader | None:
        """Loader of validation rows for means over all training processes; None without rows."""
        if rows.empty:
            return None
        of = {"rank": this_rank(), "world_size": num_ranks()}
        return self.reading.in_order(rows, self.params.evaluate.batch_size, **of)

    def predictions(self, model: TaskModel, rows: pd.DataFrame) -> NDArray[np.float32]:
        """Predictions on unaugmented patches, (n, K): class probabilities or scores."""
        predicted: NDArray[np.float32] = predict(model, self.task, self.in_order(rows).loader).numpy()
        return predicted

    def features(self, model: TaskModel, rows: pd.DataFrame) -> NDArray[np.float32]:
        """Last features before the head of unaugmented patches, (n, D)."""
        loader = self.in_order(rows).loader
        features: NDArray[np.float32] = over_patches(model, model.encoder, self.task, loader).numpy()
        return features

    def load(self, path: Path, whole: WholeModel | None = None) -> tuple[TaskModel, dict[str, Any]]:
        """Model of this task, and its description.

        Args:
            whole: model with all labels, read before, whose memory the model shares (`from_task_model`).

        Raises:
            InputError: the file holds no model, or a model of another task.
        """
        model, description = from_task_model(path, whole)
        self.task.check_fits(description, path)
        return model, description

    def hyperparameters(self, run: Run) -> Hyperparameters:
        """TensorBoard hyperparameters of the run's fine-tuning, or of its student."""
        params = self.params
        known = Hyperparameters(
            "consistency" if run.student else "finetune",
            params.dataset,
            run.method,
            run.encoder,
            params.patch_px,
            run.student,
            run.seed,
            params.alpha,
        )
        if params.finetune.mode == "head":
            return known
        if not run.student:
            return known.with_schedule(params.finetune_section(self.task.kind))
        known = dataclasses.replace(known, mu=params.mu, n_aug=params.n_aug)
        return known.with_schedule(params.student_section(run.student, self.task.kind))

    @property
    def finetune_section(self) -> HeadParams | TrainingParams | FinetuneRecipe:
        """Params of the fine-tuning in use."""
        finetune = self.params.finetune
        return finetune.head if finetune.mode == "head" else self.params.finetune_section(self.task.kind)

    def student_section(self, student: str) -> HeadParams | TrainingParams | StudentRecipe:
        """Params of a student's training in use."""
        finetune = self.params.finetune
        if finetune.mode == "head":
            return finetune.head
        return self.params.student_section(student, self.task.kind)

    def load_run(self, run: Run) -> dict[str, TaskModel]:
        """Fine-tuned model and student of a run, by name; equal encoder parameters are in memory once."""
        first = WholeModel.read(next(iter(run.models.values())), partial(tensors_on, device=self.task.device))
        return {name: self.load(path, first)[0] for name, path in run.models.items()}


def run_training(train: Callable[[torch.device, Run, Params], None], run: Run, params: Params) -> None:
    """Run a stage's training: in every process of the machine, or, for heads, in one."""
    environment = read_environment()
    if params.finetune.mode != "head":
        run_in_ranks(train, run, params, **environment.in_ranks)
    elif torchrun_rank() == 0:
        train(environment.device, run, params)


def cross_validated(
    assembly: Assembly,
    folds: LabelFolds,
    labeled: pd.DataFrame,
    train: Callable[[int], tuple[TaskModel, dict[str, Any], Result]],
    predict: Callable[[TaskModel, pd.DataFrame], NDArray[np.float32]],
) -> tuple[CrossValidated[TaskModel, Result] | None, list[dict[str, Any]]]:
    """Models trained without each fold, and their descriptions; None without folds.

    Args:
        train: held-out fold -> model, description and result of its training.
        predict: model and rows -> Shape (n, K).
    """
    if not folds.num:
        if folds.why_none:
            _LOG.warning("%s", folds.why_none)
        return None, []
    described: list[dict[str, Any]] = []

    def trained(fold: int) -> tuple[TaskModel, Result]:
        model, description, result = train(fold)
        described.append(description)
        return model, result

    rank = assembly.task.objective.rank
    return cross_validate(folds, labeled, trained, predict, rank), described


def write_fold_models(
    folder: Path,
    name: str,
    folds: LabelFolds,
    labeled: pd.DataFrame,
    validated: CrossValidated[Any, Any] | None,
    described: Sequence[Mapping[str, Any]],
    whole: TaskModel,
    classes: list[str] | None,
    reference: Reference,
) -> None:
    """Write folds.csv, one model per fold, and predictions.csv with each labeled patch predicted without its fold.

    Args:
        folder: new folder, in that of the model with all labels.
        name: model name in predictions.csv.
        labeled: rows of the label budget.
        validated: None without cross-validation; folds.csv then has no rows.
        described: JSON description of each fold's model.
        whole: model with all labels, saved in the folder above.
        classes: class names; None for scores.
        reference: of each fold's model and its labels.
    """
    folder.mkdir()
    write_folds(folder / paths.FOLDS_CSV, folds if validated else LabelFolds({}))
    if validated is None:
        return
    for fold, (model, about) in enumerate(zip(validated.models, described, strict=True)):
        state, beside, saved = model.state_dict(), dict[str, str](), folder.parent / paths.MODEL
        if about["head"] == MIXTURE:
            state, beside = head_alone(state, saved)
        elif has_adapters(model):
            state, beside = adapters_alone(model, whole, saved)
        about = {**about, "without_fold": fold, **beside}
        state = {**state, **reference(model, labeled[folds.of(labeled) != fold])}
        save_model(folder / paths.fold_model(fold), state, about)
    table = predictions_table(labeled.assign(split="validation"), {name: validated.predictions}, classes)
    write_predictions(folder / paths.PREDICTIONS, [table])


def label_counts(rows: TrainingRows, diagnoses: Sized | None = None) -> dict[str, int]:
    """Number of labels for training, for selection, and in all; of diagnoses, if they teach."""
    return {
        **({} if diagnoses is None else {"num_diagnoses": len(diagnoses)}),
        "num_labeled": len(rows.labeled),
        "num_validation": len(rows.validation),
        "num_labels": len(rows.labeled) + len(rows.validation),
    }


def schedule_of(section: TrainingParams | Recipe) -> Schedule:
    """Training schedule from a section of params."""
    if isinstance(section, Recipe):
        return Schedule(
            section.epochs,
            "adamw",
            section.lr,
            section.weight_decay,
            warmup=section.warmup,
            steps_per_epoch=section.steps_per_epoch,
        )
    numbers = dataclasses.asdict(section)
    del numbers["batch_size"], numbers["unaugmented_fraction"]
    return Schedule(**numbers)


def validation_metrics(means: Mapping[str, float]) -> dict[str, float]:
    """Validation means with the names of metrics.json."""
    return {f"validation_{name}": round(value, 6) for name, value in means.items()}
