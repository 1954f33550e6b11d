"""Base of students that train all layers and predict with their average of weights."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np
import torch

from histo_monai.models.average import StudentAndAverage
from histo_monai.models.losses import Objective
from histo_monai.models.task_model import TaskModel
from histo_monai.semisupervised.protocol import Batch
from histo_monai.semisupervised.settings import StudentRecipe
from histo_monai.semisupervised.students.views import labeled_weak_strong, weak_strong_views
from histo_monai.training.schedule import Schedule
from histo_monai.transforms.supervised import SupervisedAugmentation


class Student(abc.ABC):
    """Student that trains all layers; its average of weights predicts.

    Args:
        model: the fine-tuned model; holds the average of the student's weights.
        mpp: µm/px of the views, or None.
        n_aug: unused; `StrongSettings` has the number of operations.
    """

    Settings: ClassVar[type]
    measures: tuple[str, ...]

    def __init__(
        self,
        *,
        model: TaskModel,
        objective: Objective,
        patch_px: int,
        mpp: float | None,
        n_aug: int,
        recipe: StudentRecipe,
        settings: Any,
    ) -> None:
        self.model = model
        self.network = StudentAndAverage(model, recipe.ema_decay)
        self.settings = settings
        self.objective = objective
        self._backbone_lr_factor = recipe.backbone_lr_factor
        self._labeled_views = SupervisedAugmentation(
            patch_px, unaugmented_fraction=recipe.unaugmented_fraction, stain_jitter=recipe.stain_jitter
        )
        strong = recipe.strong
        self._unlabeled_views = weak_strong_views(
            patch_px,
            strong.num,
            strong,
            mpp=mpp,
            magnitudes=(strong.magnitudes[0], strong.magnitudes[1]),
            names=strong.operations,
        )

    def optimizer(self, schedule: Schedule) -> torch.optim.Optimizer:
        """Optimizer of the student, with a lower learning rate for the backbone."""
        student = self.network.student
        return schedule.optimizer_for(student, student.encoder, self._backbone_lr_factor)

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Labeled, weak and strong views; weak and strong views have a common base crop."""
        return labeled_weak_strong(batch, self._labeled_views, self._unlabeled_views)

    def outputs(self, views: tuple[torch.Tensor, ...]) -> Any:
        """Student outputs of all views, from one batch."""
        return self.network.student(torch.cat(views)).split([len(view) for view in views])

    @abc.abstractmethod
    def measure(self, outputs: Any, batch: Batch) -> dict[str, torch.Tensor]:
        """Values of `measures`, each of shape (n,); "loss" is minimized."""

    def after_step(self) -> None:
        """Update the average of weights."""
        self.network.follow()

    def after_epoch(self) -> None:  # noqa: B027  # most methods need no update per epoch
        """Do nothing after an epoch."""

    def pairs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """Weak and strong views, the average's predictions of weak views, the student's of strong views."""
        return self.predicted(*self.views(batch)[1:])

    def predicted(self, weak: torch.Tensor, strong: torch.Tensor) -> tuple[np.ndarray, ...]:
        """Views with the average's predictions of `weak` and the student's of `strong`."""
        self.network.eval()
        with torch.no_grad():
            predictions = [
                self.objective.predictions(network(view))
                for network, view in ((self.model, weak), (self.network.student, strong))
            ]
        return tuple(x.cpu().numpy() for x in (weak, strong, *predictions))
