"""Semi-supervised training as params ask for it: a fine-tuned model and unlabeled patches -> a student."""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch

from histo_monai.assembly import Assembly, TrainingRows, schedule_of
from histo_monai.engines.fit import Records
from histo_monai.engines.last_layer.shares import adapt, shares_of
from histo_monai.engines.students.neighbors import guesses_of_neighbors
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
    guesses = None
    if settings.asks_neighbors:
        if statistics is not None:
            adapt(model, assembly.task, statistics, shares)
        guesses = _guesses(assembly, model, rows)
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
        assembly.in_shares(rows.validation),
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
    )


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


def _guesses(assembly: Assembly, model: TaskModel, rows: TrainingRows) -> torch.Tensor:
    """Of the unlabeled patches, see `engines.students.neighbors`."""
    size = assembly.params.evaluate.batch_size
    guesses, weighing = guesses_of_neighbors(
        model, assembly.task, assembly.reading, rows.unlabeled, rows.validation, size
    )
    _LOG.info("of a guess the patch itself counts %g, its neighbors %g", *weighing)
    return guesses


def _log_predicted(method: SemiSupervised, assembly: Assembly, unlabeled: LabeledLoader) -> None:
    """What the model that the student starts from predicts of weak and of strong views."""
    predicted = predicted_by_views(method, assembly.task, unlabeled.some(NUM_PATCHES)[0])
    for name, figures in predicted.items():
        _LOG.info("before training: predicted %s: weak=%.3f strong=%.3f", name, *figures)


def student_code(stage: str, student: str) -> str:
    """Digest of the code that a stage runs with a semi-supervised method, which it loads by name."""
    return stage_sha256(stage, METHODS[student].__module__)
