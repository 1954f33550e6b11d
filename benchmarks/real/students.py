"""Students of the selected head: unlabeled patches of the training patients, in feature space."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from histo_monai.data.tables.tasks import dependence_groups
from histo_monai.finetuning.heads.selection import Labels
from histo_monai.finetuning.heads.unlabeled.self_training import HeadData, Unlabeled
from histo_monai.semisupervised.heads.self_training import SelfTraining
from histo_monai.semisupervised.settings import SelfTrainingSettings

from .models import BenchmarkModel, Problem, Selected
from .tasks import RealTask

STUDENTS = {
    "self-training": SelfTrainingSettings(weight=1.0, threshold=0.8, propagation=0.0, num_neighbors=10),
    "propagation": SelfTrainingSettings(weight=1.0, threshold=0.8, propagation=0.9, num_neighbors=10),
}
"""Ending of a row, as `<row of a selected head>-<ending>`: the method `self_training`, without and with propagation."""


@dataclass(frozen=True)
class HeadStudent:
    """A selected head that learns from its own pseudo labels, too, where the safeguard accepts them.

    Attributes:
        teacher: heads and their features.
        settings: of the method `self_training`.
    """

    teacher: Selected
    settings: SelfTrainingSettings

    def is_for(self, task: RealTask) -> bool:
        """Scores have no pseudo labels."""
        return task.classes is not None and self.teacher.is_for(task)

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """See `BenchmarkModel`."""
        about = f"student 1\n{self.teacher.digest(real, task, fold)}\n{self.settings}"
        return hashlib.sha256(about.encode()).hexdigest()

    def prepare(self, real: Path, cache: Path, task: RealTask, fold: int) -> None:
        """The features."""
        self.teacher.prepare(real, cache, task, fold)

    def predict(self, problem: Problem) -> NDArray[np.float64]:
        """See `BenchmarkModel`."""
        split, source = problem.split, self.teacher.source
        features = source.features(problem.real, problem.cache, problem.task, problem.fold)
        rest = np.setdiff1d(split.unlabeled, split.labeled)
        labeled, unlabeled, tested = (
            {name: rows[numbers] for name, rows in features.items()}
            for numbers in (split.labeled, rest, split.tested)
        )
        groups = dependence_groups(problem.patches)
        labels = Labels(problem.labeled_targets, groups[split.labeled], problem.num_classes)
        others = Unlabeled(unlabeled, groups[rest])
        data = HeadData(labeled, labels, others, self.teacher.settings, problem.subset)
        return SelfTraining.fit_head(data, self.settings).head.predict(tested)


def head_students(models: Mapping[str, BenchmarkModel]) -> dict[str, BenchmarkModel]:
    """Students of all selected heads, by name."""
    return {
        f"{name}-{ending}": HeadStudent(model, settings)
        for name, model in models.items()
        if isinstance(model, Selected)
        for ending, settings in STUDENTS.items()
    }
