"""The two trainings with labels, as params ask for them: an encoder is fine-tuned, and a student made of the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from histo_monai.assembly import Assembly, TrainingRows
from histo_monai.engines.fit import Records
from histo_monai.engines.semisupervised import PairPicture, StudentResult, train_student
from histo_monai.engines.supervised import FinetuneResult, Picture, finetune
from histo_monai.imports import stage_sha256
from histo_monai.networks.task_model import TaskModel, describe_task_model, from_encoder
from histo_monai.params.sections import TrainingParams
from histo_monai.randomness import derive_seed
from histo_monai.schedule import Schedule
from histo_monai.semisupervised import METHODS
from histo_monai.tables.tasks import training_mpp


def finetune_encoder(
    assembly: Assembly, encoder: Path, rows: TrainingRows, *, seed: int, picture: Picture, records: Records
) -> tuple[TaskModel, dict[str, Any], FinetuneResult]:
    """A pretrained encoder and rows with labels -> a model of the task, its description, and the course.

    Args:
        assembly: the experiment.
        encoder: encoder.safetensors of a pretraining.
        rows: what is trained on, and what chooses the epoch.
        seed: of everything random in it.
        picture: draws some validation patches.
        records: where traces are left.

    Raises:
        InputError: see `from_encoder`; or the loss is not finite.
    """
    section = assembly.params.finetune_section
    torch.manual_seed(derive_seed(seed, "initialisation"))
    model, description = from_encoder(encoder, assembly.task.num_outputs)
    result = finetune(
        model,
        assembly.task,
        assembly.reading.shuffled(rows.labeled, section.batch_size, seed=seed, purpose="labeled"),
        assembly.in_order(rows.validation),
        schedule=_schedule(section),
        seed=seed,
        picture=picture,
        records=records,
    )
    params = assembly.params
    described = describe_task_model(
        description,
        classes=assembly.task.classes,
        patch_px=params.patch_px,
        mpp=training_mpp(assembly.patches, params.patch_px),
    )
    return model, described | {"dataset": params.dataset, "alpha": params.alpha}, result


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
    """A fine-tuned model and unlabeled patches -> the last student, in `model`.

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
    params, section = assembly.params, assembly.params.consistency_section
    method = METHODS[student](
        model=model,
        objective=assembly.task.objective,
        patch_px=params.patch_px,
        n_aug=params.n_aug,
        settings=params.consistency.methods[student],
    )
    labeled, unlabeled = assembly.reading.side_by_side(
        rows.labeled, rows.unlabeled, section.batch_size, mu=params.mu, seed=seed
    )
    return train_student(
        method,
        assembly.task,
        labeled,
        unlabeled,
        assembly.in_order(rows.validation),
        schedule=_schedule(section),
        seed=seed,
        picture=picture,
        records=records,
    )


def _schedule(section: TrainingParams) -> Schedule:
    numbers = dataclasses.asdict(section)
    del numbers["batch_size"]
    return Schedule(**numbers)


def student_code(stage: str, student: str) -> str:
    """Digest of the code that a stage runs with a semi-supervised method, which it loads by name."""
    return stage_sha256(stage, METHODS[student].__module__)


def validation_metrics(means: Mapping[str, float]) -> dict[str, float]:
    """Means over the validation patches, as metrics.json has them."""
    return {f"validation_{name}": round(value, 6) for name, value in means.items()}
