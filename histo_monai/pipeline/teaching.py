"""Semi-supervised training with the settings of params: fine-tuned model and unlabeled patches -> student."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from histo_monai.data.loaders.labeled import HiddenLabels, LabeledLoader
from histo_monai.data.loaders.streams import for_statistics, two_streams
from histo_monai.data.tables.label_folds import LabelFolds
from histo_monai.data.tables.tasks import training_mpp
from histo_monai.evaluation.cross_validation import CrossValidated
from histo_monai.models.sharing.copies import copy_sharing, frozen_parameters
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline.context import Assembly, TrainingRows, cross_validated, schedule_of
from histo_monai.pipeline.imports import stage_sha256
from histo_monai.pipeline.params.head_sections import FinetuneMode
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.protocol import SemiSupervised
from histo_monai.semisupervised.teaching.class_proportions import adapt, class_proportions
from histo_monai.semisupervised.teaching.neighbors import (
    NeighborWeights,
    combine,
    fit_weights,
    patches_and_neighbors,
)
from histo_monai.semisupervised.teaching.trainer import PairPicture, StudentResult, train_student
from histo_monai.semisupervised.teaching.view_predictions import NUM_PATCHES, predicted_by_views
from histo_monai.training.fit import Records
from histo_monai.utils.randomness import derive_seed

_LOG = logging.getLogger(__name__)


def teach_student(
    assembly: Assembly,
    student: str,
    model: TaskModel,
    rows: TrainingRows,
    *,
    seed: int,
    picture: PairPicture,
    records: Records,
    selected: float | None = None,
    weighing: NeighborWeights | None = None,
) -> StudentResult:
    """Train `model`, a fine-tuned model, into a student; the training result.

    Args:
        student: semi-supervised method.
        rows: training and validation patches.
        seed: of all random decisions.
        picture: draws pairs of weak and strong views.
        weighing: weights of a patch and its neighbors in pseudo labels; None: selected on validation patches.

    Raises:
        InputError: the loss is not finite.
    """
    params = assembly.params
    section = params.student_section(student, assembly.task.kind)
    settings = params.consistency.methods[student]
    schedule = schedule_of(section)
    statistics = for_statistics(
        assembly.reading, rows.unlabeled, section.batchnorm_patches, params.evaluate.batch_size, seed
    )
    matches = section.match_class_proportions
    proportions = class_proportions(model, assembly.task, statistics) if statistics and matches else None
    start = _start(model, params.finetune.mode)
    pseudo_labels: torch.Tensor | None = None
    if settings.needs_neighbors:
        if statistics is not None:
            adapt(model, assembly.task, statistics, proportions)
        weighing = weighing or weigh_neighbors(assembly, [(model, rows.validation)])
        pseudo_labels = _pseudo_labels(assembly, model, rows.unlabeled, weighing)
    method = _method(assembly, student, model)
    labeled, unlabeled = two_streams(
        assembly.reading,
        rows.labeled,
        rows.unlabeled,
        section.batch_size,
        mu=params.mu,
        seed=seed,
        num_batches=schedule.steps_per_epoch,
        chances=None if pseudo_labels is None else method.sampling_probabilities(pseudo_labels),
    )
    if schedule.epochs:
        _log_predicted(method, assembly, unlabeled)
    return train_student(
        method,
        assembly.task,
        labeled,
        unlabeled,
        assembly.validation(rows.validation),
        hidden=HiddenLabels.of(rows.unlabeled, rows.labeled, assembly.task.classes),
        pseudo_labels=pseudo_labels,
        schedule=schedule,
        seed=seed,
        picture=picture,
        records=records,
        statistics=statistics,
        proportions=proportions,
        start=start,
        interpolation_weights=section.interpolation_weights,
        selects_epoch=settings.keeps_best_epoch,
        selected=selected,
    )


def _start(model: TaskModel, mode: FinetuneMode) -> TaskModel:
    """Copy of a model before training; in modes without training of the encoder both share its parameters."""
    if mode != "all":
        model.encoder.requires_grad_(False)
    return copy_sharing(model, frozen_parameters(model))


@dataclass(frozen=True)
class Teaching:
    """All trainings of a student: with all labels, and without each fold.

    Attributes:
        student: semi-supervised method.
        start: fold (None for all labels) -> fine-tuned model and description.
        folds: patient folds of the fine-tuning.
        seed: of all random decisions.
        picture: draws pairs of weak and strong views.
        records: (fold, candidate, pseudo-label weights) -> logs and checkpoints.
        weighing: pseudo-label weights of a patch and its neighbors, from `weighed`.
    """

    assembly: Assembly
    student: str
    start: Callable[[int | None], tuple[TaskModel, dict[str, Any]]]
    rows: TrainingRows
    folds: LabelFolds
    seed: int
    picture: PairPicture
    records: Callable[[int | None, float | None, NeighborWeights | None], Records]
    weighing: NeighborWeights | None = None

    def train(
        self, fold: int | None = None, candidate: float | None = None
    ) -> tuple[TaskModel, dict[str, Any], StudentResult]:
        """Train a student with all labels, or without a fold."""
        model, description = self.start(fold)
        result = teach_student(
            self.assembly,
            self.student,
            model,
            self.rows if fold is None else self.rows.without(self.folds, fold),
            seed=self.seed if fold is None else derive_seed(self.seed, "fold", fold),
            picture=self.picture,
            records=self.records(fold, candidate, self.weighing),
            selected=candidate,
            weighing=self.weighing,
        )
        return model, description, result

    def weighed(self) -> Self:
        """Trainings with pseudo-label weights that labels held out from the fold models select.

        Without them if separate validation patches select, or the method uses no neighbors.
        """
        settings = self.assembly.params.consistency.methods[self.student]
        if not settings.needs_neighbors or len(self.rows.validation):
            return self
        folds = range(self.folds.num)
        looks = [(self.start(fold)[0], self.rows.without(self.folds, fold).validation) for fold in folds]
        return replace(self, weighing=weigh_neighbors(self.assembly, looks))

    def cross_validate(
        self,
    ) -> tuple[CrossValidated[TaskModel, StudentResult] | None, list[dict[str, Any]]]:
        """Students without each fold, and their descriptions; None without folds."""
        return cross_validated(self.assembly, self.folds, self.rows.labeled, self.train, self.predictions)

    def predictions(self, model: TaskModel, rows: pd.DataFrame) -> NDArray[np.float32]:
        """Predictions on unaugmented patches, (n, K)."""
        return self.assembly.predictions(model, rows)

    def candidate(self, validated: CrossValidated[Any, Any] | None) -> float | None:
        """Selected candidate of the final student; None if separate validation patches select."""
        if len(self.rows.validation):
            return None
        if validated is None:
            return without_validation(self.assembly, self.student)
        _LOG.info(
            "consistency: cross-validation labels=%d selected=%g", len(self.rows.labeled), validated.selected
        )
        return validated.selected


def weigh_neighbors(assembly: Assembly, looks: Sequence[tuple[TaskModel, pd.DataFrame]]) -> NeighborWeights:
    """Pseudo-label weights of a patch and its neighbors."""
    weighing = fit_weights(looks, assembly.task, assembly.reading, assembly.params.evaluate.batch_size)
    _LOG.info("consistency: pseudo-label weights: self=%g neighbors=%g", *weighing)
    return weighing


def without_validation(assembly: Assembly, student: str) -> float:
    """Candidate without cross-validation: the fine-tuned model, or the method's only candidate."""
    section = assembly.params.student_section(student, assembly.task.kind)
    if assembly.params.consistency.methods[student].keeps_best_epoch:
        return 0.0
    return section.interpolation_weights[0] if len(section.interpolation_weights) == 1 else 1.0


def _pseudo_labels(
    assembly: Assembly, model: TaskModel, rows: pd.DataFrame, weighing: NeighborWeights
) -> torch.Tensor:
    """Pseudo labels of patches, weighted over their neighbors, (n, K)."""
    size = assembly.params.evaluate.batch_size
    return combine(
        patches_and_neighbors(model, assembly.task, assembly.reading, rows, size),
        weighing,
        assembly.task.classes,
    )


def _method(assembly: Assembly, student: str, model: TaskModel) -> Any:
    """Semi-supervised method with its settings."""
    params = assembly.params
    return METHODS[student](
        model=model,
        objective=assembly.task.objective,
        patch_px=params.patch_px,
        mpp=training_mpp(assembly.patches, params.patch_px),
        n_aug=params.n_aug,
        recipe=params.student_section(student, assembly.task.kind),
        settings=params.consistency.methods[student],
    )


def _log_predicted(method: SemiSupervised, assembly: Assembly, unlabeled: LabeledLoader) -> None:
    """Log the fine-tuned model's predictions on weak and strong views."""
    predicted = predicted_by_views(method, assembly.task, unlabeled.some(NUM_PATCHES)[0])
    for name, figures in predicted.items():
        _LOG.info("consistency: before training: predicted %s: weak=%.3f strong=%.3f", name, *figures)


def student_code(stage: str, student: str) -> str:
    """Digest of a stage's code with the semi-supervised method's module."""
    return stage_sha256(stage, METHODS[student].__module__)
