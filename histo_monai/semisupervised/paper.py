"""The paper's consistency training, to the letter (section 3.3): frozen trunk, the last student teaches the next epoch.

The student, shown strong views, learns to say what the teacher says of weak views of the same patches. Both are heads
over the frozen trunk of the fine-tuned model. Classes: cross-entropy against the class that the teacher finds most
probable, wherever it gives it `threshold` at least; all patches count in the mean (Sohn et al. 2020; the paper has no
threshold). Scores: squared difference.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np
import torch

from histo_monai.models.losses import Objective
from histo_monai.models.task_model import TaskModel
from histo_monai.models.teacher_student import TeacherStudent
from histo_monai.semisupervised.protocol import GUESSES, Batch
from histo_monai.semisupervised.settings import PaperSettings
from histo_monai.semisupervised.students.views import labeled_weak_strong, weak_strong_views
from histo_monai.training.schedule import Schedule
from histo_monai.transforms.supervised import SupervisedAugmentation

Outputs = tuple[torch.Tensor, torch.Tensor]


class LabeledViews(Protocol):
    """What the section of a dataset, and every recipe, states of labeled views."""

    @property
    def unaugmented_fraction(self) -> float:
        """Fraction of unaugmented views."""


class Paper:
    """See the module and `protocol.SemiSupervised`.

    Args:
        model: the fine-tuned model, teacher and student at the start; its head becomes the last student's.
        objective: classes or scores.
        patch_px: side of the views.
        mpp: µm/px of the views; None: unknown.
        n_aug: operations of a strong view.
        recipe: how it trains, of which the engine follows the rest.
        settings: see `PaperSettings`.
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
            GUESSES,
        )

    def optimizer(self, schedule: Schedule) -> torch.optim.Optimizer:
        """Over the student's head."""
        return schedule.build_optimizer(self.network.student.parameters())

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Labeled, weak and strong views; the latter two of one base crop."""
        return labeled_weak_strong(batch, self._labeled_views, self._unlabeled_views)

    def outputs(self, views: tuple[torch.Tensor, ...]) -> Outputs:
        """Of the student on labeled and strong views, of the teacher on labeled and weak ones, each (B + mu B, K)."""
        features = self.network.features(torch.cat(views))
        of_labeled, of_weak, of_strong = features.split([len(view) for view in views])
        with torch.no_grad():
            teacher = self.network.teacher(torch.cat([of_labeled, of_weak]))
        return self.network.student(torch.cat([of_labeled, of_strong])), teacher

    def measure(self, outputs: Outputs, batch: Batch) -> dict[str, torch.Tensor]:
        """Mean supervised loss + weight times the mean consistency, shape (1,); and its parts."""
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
            GUESSES: self._objective.guesses(teacher[num:]),
        }

    def after_step(self) -> None:
        """Nothing follows a step."""

    def after_epoch(self) -> None:
        """The student becomes the teacher."""
        self.network.replace_teacher()

    def pairs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """Weak views and the teacher's predictions of them, strong views and the student's."""
        self.network.eval()
        _, weak, strong = self.views(batch)
        parts = ((self.network.teacher, weak), (self.network.student, strong))
        with torch.no_grad():
            predictions = [
                self._objective.predictions(head(self.network.features(view))) for head, view in parts
            ]
        return tuple(x.cpu().numpy() for x in (weak, strong, *predictions))
