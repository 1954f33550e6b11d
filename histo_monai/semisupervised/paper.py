"""Teacher-student consistency training of Srinidhi 2022 (section 3.3).

Teacher and student are heads over the frozen backbone of the fine-tuned model. On strong views, the student learns the
teacher's predictions of weak views. After each epoch the student becomes the teacher. Classes: cross-entropy against
the teacher's most probable class, where its probability reaches `threshold`; all patches count in the mean (Sohn et
al. 2020; the paper has no threshold). Scores: squared difference.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np
import torch

from histo_monai.models.losses import Objective
from histo_monai.models.task_model import TaskModel
from histo_monai.models.teacher_student import TeacherStudent
from histo_monai.semisupervised.protocol import PSEUDO_LABELS, Batch
from histo_monai.semisupervised.settings import PaperSettings
from histo_monai.semisupervised.students.views import labeled_weak_strong, weak_strong_views
from histo_monai.training.schedule import Schedule
from histo_monai.transforms.supervised import SupervisedAugmentation

Outputs = tuple[torch.Tensor, torch.Tensor]


class LabeledViews(Protocol):
    """Settings of labeled views, common to recipes and dataset sections."""

    @property
    def unaugmented_fraction(self) -> float:
        """Fraction of unaugmented views."""


class Paper:
    """Teacher-student consistency training of heads over a frozen backbone.

    Args:
        model: the fine-tuned model, teacher and student at the start; its head becomes the last student's.
        mpp: µm/px of the views, or None.
        n_aug: operations of a strong view.
        recipe: section of the dataset; the engine reads the other values.
    """

    Settings: ClassVar[type] = PaperSettings

    def __init__(
        self,
        *,
        model: TaskModel,
        objective: Objective,
        patch_px: int,
        mpp: float | None,
        n_aug: int,
        recipe: LabeledViews,
        settings: PaperSettings,
    ) -> None:
        self.model = model
        self.network = TeacherStudent(model)
        self.settings = settings
        self._objective = objective
        self._labeled_views = SupervisedAugmentation(
            patch_px, unaugmented_fraction=recipe.unaugmented_fraction
        )
        self._unlabeled_views = weak_strong_views(patch_px, n_aug, settings.strong, mpp=mpp)
        self._quality = objective.MEASURES[1]
        self.measures = (
            *("loss", "supervised", "consistency", self._quality, f"teacher_{self._quality}"),
            *objective.PSEUDO_MEASURES,
            PSEUDO_LABELS,
        )

    def optimizer(self, schedule: Schedule) -> torch.optim.Optimizer:
        """Optimizer of the student's head."""
        return schedule.build_optimizer(self.network.student.parameters())

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Labeled, weak and strong views; weak and strong views have a common base crop."""
        return labeled_weak_strong(batch, self._labeled_views, self._unlabeled_views)

    def outputs(self, views: tuple[torch.Tensor, ...]) -> Outputs:
        """Outputs (B + mu B, K): student on labeled and strong views, teacher on labeled and weak views."""
        features = self.network.features(torch.cat(views))
        of_labeled, of_weak, of_strong = features.split([len(view) for view in views])
        with torch.no_grad():
            teacher = self.network.teacher(torch.cat([of_labeled, of_weak]))
        return self.network.student(torch.cat([of_labeled, of_strong])), teacher

    def measure(self, outputs: Outputs, batch: Batch) -> dict[str, torch.Tensor]:
        """Mean supervised loss + weight x mean consistency, shape (1,); and its parts."""
        student, teacher = outputs
        num, threshold = len(batch.targets), self.settings.threshold
        measured = self._objective.measure(student[:num], batch.targets)
        consistency = self._objective.consistency(student[num:], teacher[num:], threshold)
        loss = measured["loss"].mean() + self.settings.weight * consistency.mean()
        of_teacher = self._objective.measure(teacher[:num], batch.targets)
        return {
            "loss": loss.unsqueeze(0),
            "supervised": measured["loss"],
            "consistency": consistency,
            self._quality: measured[self._quality],
            f"teacher_{self._quality}": of_teacher[self._quality],
            **self._objective.pseudo_measure(student[num:].detach(), teacher[num:], threshold),
            PSEUDO_LABELS: self._objective.pseudo_labels(teacher[num:]),
        }

    def after_step(self) -> None:
        """Do nothing after a step."""

    def after_epoch(self) -> None:
        """Replace the teacher by the student."""
        self.network.replace_teacher()

    def pairs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """Weak and strong views, the teacher's predictions of weak views, the student's of strong views."""
        self.network.eval()
        _, weak, strong = self.views(batch)
        parts = ((self.network.teacher, weak), (self.network.student, strong))
        with torch.no_grad():
            predictions = [
                self._objective.predictions(head(self.network.features(view))) for head, view in parts
            ]
        return tuple(x.cpu().numpy() for x in (weak, strong, *predictions))
