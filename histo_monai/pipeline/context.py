"""Params, patches, networks and engines put together: what stages after the pretraining share.

A stage reads an `Assembly`, trains (`finetuning`, `teaching`) or predicts with it, and writes; engines see loaders.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import ignite.distributed as idist
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from histo_monai.data.loaders.labeled import LabeledLoader, PatchReading
from histo_monai.data.tables.label_folds import LabelFolds, deal_folds, write_folds
from histo_monai.data.tables.patches import read_patches
from histo_monai.data.tables.predictions import predictions_table, write_predictions
from histo_monai.data.tables.splits import drawn_by, labeled_rows
from histo_monai.data.tables.tasks import split_rows, task_classes
from histo_monai.evaluation.cross_validation import CrossValidated
from histo_monai.models.checkpoint import save_model
from histo_monai.models.task_model import TaskModel, from_task_model
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import Environment, read_environment
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.params.sections import TrainingParams
from histo_monai.pipeline.paths import Run
from histo_monai.training.events import Hyperparameters
from histo_monai.training.prediction import predict
from histo_monai.training.schedule import Schedule
from histo_monai.training.task import Task
from histo_monai.utils.randomness import generator
from histo_monai.utils.settings.recipe import Recipe


@dataclass(frozen=True)
class TrainingRows:
    """Rows of patches that a training uses.

    Attributes:
        labeled: training patches whose labels are given: the label budget.
        train: all training patches, the labeled ones among them; the labels of the others are not looked at.
        unlabeled: these, and those of unlabeled.csv where a training learns from them: what students are taught on.
        validation: measured after each epoch; empty where all that labels select is selected inside the budget.
    """

    labeled: pd.DataFrame
    train: pd.DataFrame
    unlabeled: pd.DataFrame
    validation: pd.DataFrame

    def without(self, folds: LabelFolds, fold: int) -> TrainingRows:
        """All patients but those of a fold; validation patches are their labeled ones where there are no others.

        Args:
            fold: that is held out.
        """
        held_out = self.labeled[folds.of(self.labeled) == fold].reset_index(drop=True)
        labeled, train, unlabeled = (
            table[folds.of(table) != fold].reset_index(drop=True)
            for table in (self.labeled, self.train, self.unlabeled)
        )
        return TrainingRows(labeled, train, unlabeled, self.validation if len(self.validation) else held_out)


@dataclass(frozen=True)
class Assembly:
    """One experiment on this machine.

    Attributes:
        params: of the experiment.
        environment: of the machine; its cores are in use.
        patches: `data.tables.columns.PATCH_COLUMNS`, all splits.
        task: what is learned from them.
        reading: rows -> loaders.
    """

    params: Params
    environment: Environment
    patches: pd.DataFrame
    task: Task
    reading: PatchReading

    @classmethod
    def read(cls) -> Self:
        """From params.yaml, the environment and data/index/patches.csv.

        Raises:
            InputError: one of them cannot be used.
        """
        return cls.of(load_params(paths.PARAMS))

    @classmethod
    def of(cls, params: Params, device: torch.device | None = None) -> Self:
        """As `read`, where params are read already.

        Args:
            device: of this process, where several train; None: that of the environment.

        Raises:
            InputError: the environment or the patches cannot be used.
        """
        environment = read_environment()
        environment = dataclasses.replace(environment, device=device or environment.device)
        environment.use_cpus(idist.get_world_size())
        patches = read_patches(paths.PATCHES_CSV)
        task = Task(task_classes(patches), patch_px=params.patch_px, device=environment.device)
        reading = PatchReading(params.patch_px, task.classes, environment.workers, task.device)
        return cls(params, environment, patches, task, reading)

    def rows(self, seed: int, *, with_unlabeled: bool) -> TrainingRows:
        """What trainings of a seed use.

        Args:
            with_unlabeled: whether data/index/unlabeled.csv is read.

        Raises:
            InputError: see `labeled_rows`; or the file cannot be used.
        """
        known = drawn_by(self.patches, seed)
        more = [read_patches(paths.UNLABELED_CSV)] if with_unlabeled else []
        train = split_rows(known, "train")
        return TrainingRows(
            labeled_rows(known, self.params.alpha),
            train,
            pd.concat([train, *more], ignore_index=True),
            split_rows(known, "validation"),
        )

    def folds(self, rows: TrainingRows, seed: int) -> LabelFolds:
        """Folds of the patients for a cross-validation on the labels."""
        num = self.params.cross_validation.num_folds
        return deal_folds(rows.train, rows.labeled, num, generator(seed, "label folds"))

    def labeled(self, seed: int) -> pd.DataFrame:
        """The training patches whose labels a seed's runs are given.

        Raises:
            InputError: see `labeled_rows`.
        """
        return labeled_rows(drawn_by(self.patches, seed), self.params.alpha)

    def in_order(self, rows: pd.DataFrame) -> LabeledLoader:
        """Every row once, in batches for a pass without gradient."""
        return self.reading.in_order(rows, self.params.evaluate.batch_size)

    def validation(self, rows: pd.DataFrame) -> LabeledLoader | None:
        """The same for means over all processes of a training: each has a share of every batch. None of no rows."""
        if rows.empty:
            return None
        of = {"rank": idist.get_rank(), "world_size": idist.get_world_size()}
        return self.reading.in_order(rows, self.params.evaluate.batch_size, **of)

    def predictions(self, model: TaskModel, rows: pd.DataFrame) -> NDArray[np.float32]:
        """What a model says of unaugmented patches, (n, K): probabilities of classes, or scores."""
        predicted: NDArray[np.float32] = predict(model, self.task, self.in_order(rows).loader).numpy()
        return predicted

    def load(self, path: Path) -> tuple[TaskModel, dict[str, Any]]:
        """A model of this task and its description.

        Raises:
            InputError: the file is no model, or one of another task.
        """
        model, description = from_task_model(path)
        self.task.check_fits(description, path)
        return model, description

    def hyperparameters(self, run: Run) -> Hyperparameters:
        """What TensorBoard compares the fine-tuning of a run by, or the training of its student where it has one."""
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
        if not run.student:
            return known.with_schedule(params.finetune_section(self.task.kind))
        known = dataclasses.replace(known, mu=params.mu, n_aug=params.n_aug)
        return known.with_schedule(params.student_section(run.student, self.task.kind))

    def load_run(self, run: Run) -> dict[str, TaskModel]:
        """Fine-tuned model and student, by name."""
        return {name: self.load(path)[0] for name, path in run.models.items()}


def write_fold_models(
    folder: Path,
    name: str,
    folds: LabelFolds,
    labeled: pd.DataFrame,
    validated: CrossValidated[Any, Any] | None,
    described: Sequence[Mapping[str, Any]],
    classes: list[str] | None,
) -> None:
    """Write folds.csv, a model of each fold, and predictions.csv of the labeled patches by the model without each.

    Args:
        folder: not there yet.
        name: of the model, as predictions.csv has it.
        labeled: rows of the label budget.
        validated: None where nothing was cross-validated; folds.csv has no row then.
        described: of each fold, for the JSON beside its model.
        classes: names by number; None for scores.
    """
    folder.mkdir()
    write_folds(folder / paths.FOLDS_CSV, folds if validated else LabelFolds({}))
    if validated is None:
        return
    for fold, (model, about) in enumerate(zip(validated.models, described, strict=True)):
        save_model(folder / paths.fold_model(fold), model.state_dict(), {**about, "without_fold": fold})
    table = predictions_table(labeled.assign(split="validation"), {name: validated.predictions}, classes)
    write_predictions(folder / paths.PREDICTIONS, [table])


def label_counts(rows: TrainingRows) -> dict[str, int]:
    """How many labels a training was given: to learn from, to select by, and both together."""
    return {
        "num_labeled": len(rows.labeled),
        "num_validation": len(rows.validation),
        "num_labels": len(rows.labeled) + len(rows.validation),
    }


def schedule_of(section: TrainingParams | Recipe) -> Schedule:
    """How long and how fast, as a section of params says."""
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
    """Means over the validation patches, as metrics.json has them."""
    return {f"validation_{name}": round(value, 6) for name, value in means.items()}
