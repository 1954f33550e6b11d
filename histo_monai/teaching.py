"""Semi-supervised training as params ask for it: a fine-tuned model and unlabeled patches -> a student."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch

from histo_monai.assembly import Assembly, TrainingRows, schedule_of
from histo_monai.engines.fit import Records
from histo_monai.engines.last_layer.shares import adapt, shares_of
from histo_monai.engines.students.neighbors import Weighing, combine, see, weigh_by
from histo_monai.engines.students.training import PairPicture, StudentResult, train_student
from histo_monai.engines.students.view_predictions import NUM_PATCHES, predicted_by_views
from histo_monai.imports import stage_sha256
from histo_monai.loading.labeled import HiddenLabels, LabeledLoader
from histo_monai.loading.streams import for_statistics, two_streams
from histo_monai.networks.task_model import TaskModel
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.protocol import SemiSupervised
from histo_monai.tables.tasks import training_mpp

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
    weighing: Weighing | None = None,
) -> StudentResult:
    """A fine-tuned model and unlabeled patches -> a student, in `model`.

    Args:
        assembly: the experiment.
        student: name of the semi-supervised method.
        model: where it starts.
        rows: what is trained on, and measured after each epoch.
        seed: of everything random in it.
        picture: draws weak and strong pairs.
        records: where traces are left.
        selected: see `train_student`.
        weighing: of a patch and its neighbors in pseudo labels; None: validation patches decide.

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
    shares = shares_of(model, assembly.task, statistics) if statistics and section.keep_shares else None
    start = copy.deepcopy(model)
    guesses: torch.Tensor | None = None
    if settings.asks_neighbors:
        if statistics is not None:
            adapt(model, assembly.task, statistics, shares)
        weighing = weighing or weigh_neighbors(assembly, [(model, rows.validation)])
        size = params.evaluate.batch_size
        guesses = combine(
            see(model, assembly.task, assembly.reading, rows.unlabeled, size), weighing, assembly.task.classes
        )
    method = _method(assembly, student, model)
    labeled, unlabeled = two_streams(
        assembly.reading,
        rows.labeled,
        rows.unlabeled,
        section.batch_size,
        mu=params.mu,
        seed=seed,
        num_batches=schedule.steps_per_epoch,
        chances=None if guesses is None else method.chances(guesses),
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
        guesses=guesses,
        schedule=schedule,
        seed=seed,
        picture=picture,
        records=records,
        statistics=statistics,
        shares=shares,
        start=start,
        start_shares=section.start_shares,
        selects_epoch=settings.keeps_best_epoch,
        selected=selected,
    )


def weigh_neighbors(assembly: Assembly, looks: Sequence[tuple[TaskModel, pd.DataFrame]]) -> Weighing:
    """How much a patch and its neighbors count in pseudo labels, see `engines.students.neighbors.weigh_by`."""
    weighing = weigh_by(looks, assembly.task, assembly.reading, assembly.params.evaluate.batch_size)
    _LOG.info("pseudo-label weights: self=%g neighbors=%g", *weighing)
    return weighing


def asks_neighbors(assembly: Assembly, student: str) -> bool:
    """Whether a method's pseudo labels are those of a patch and its neighbors."""
    asks: bool = assembly.params.consistency.methods[student].asks_neighbors
    return asks


def without_validation(assembly: Assembly, student: str) -> float:
    """The candidate where the labels cannot be cross-validated: the model that the student would start from.

    A method with one candidate takes that one.
    """
    section = assembly.params.student_section(student, assembly.task.kind)
    if assembly.params.consistency.methods[student].keeps_best_epoch:
        return 0.0
    return section.start_shares[0] if len(section.start_shares) == 1 else 1.0


def _method(assembly: Assembly, student: str, model: TaskModel) -> Any:
    """The semi-supervised method of a name, which starts from a model."""
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
    """What the model that the student starts from predicts of weak and of strong views."""
    predicted = predicted_by_views(method, assembly.task, unlabeled.some(NUM_PATCHES)[0])
    for name, figures in predicted.items():
        _LOG.info("before training: predicted %s: weak=%.3f strong=%.3f", name, *figures)


def student_code(stage: str, student: str) -> str:
    """Digest of the code that a stage runs with a semi-supervised method, which it loads by name."""
    return stage_sha256(stage, METHODS[student].__module__)
