"""Students of a wave task, taught from a model in a few steps."""

from __future__ import annotations

import copy
from typing import Any

import torch

from histo_monai.data.loaders.labeled import LabeledLoader
from histo_monai.data.loaders.streams import two_streams
from histo_monai.data.tables.tasks import split_rows
from histo_monai.models.task_model import TaskModel
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.teaching.trainer import StudentResult, train_student
from histo_monai.training.fit import Records
from histo_monai.training.schedule import Schedule
from tests.recipes import RECIPE
from tests.waves import WaveTask


def statistics_of(task: WaveTask) -> LabeledLoader:
    """Patches that the students' statistics are of."""
    train = split_rows(task.patches, "train")
    return task.shuffled(train, 8, seed=0, purpose="statistics", num_batches=2)


def taught(
    task: WaveTask, start: TaskModel, name: str, settings: Any = None, *, schedule: Schedule, **finish: Any
) -> tuple[StudentResult, TaskModel]:
    """What the training leaves, and the student; the model that it starts from stays as it is.

    Args:
        task: of the patches.
        start: where the student starts.
        name: of the method.
        settings: of the method; None: it has nothing to set.
        schedule: of epochs of three steps.
        finish: as for `train_student`.
    """
    method: Any = METHODS[name](
        model=copy.deepcopy(start),
        objective=task.objective,
        patch_px=task.patch_px,
        mpp=None,
        n_aug=7,
        recipe=RECIPE,
        settings=settings or METHODS[name].Settings(),
    )
    train = split_rows(task.patches, "train")
    labeled, unlabeled = two_streams(task.reading, train.head(6), train, 4, mu=2, seed=0, num_batches=3)
    result = train_student(
        method,
        task,
        labeled,
        unlabeled,
        task.in_order(split_rows(task.patches, "validation"), 16),
        schedule=schedule,
        seed=0,
        picture=lambda *shown: torch.zeros(2, 2, 3).numpy(),
        records=Records(),
        statistics=statistics_of(task),
        **finish,
    )
    return result, method.model
