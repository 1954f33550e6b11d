"""What methods share whose student trains whole, and whose average of weights predicts."""

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
    """See the module and `protocol.SemiSupervised`.

    Args:
        model: the fine-tuned model; holds the average of the student's weights.
        objective: classes or scores.
        patch_px: side of the views.
        mpp: µm/px of the views; None: unknown.
        n_aug: of the paper's student; not used here, see `StrongSettings`.
        recipe: how all of these students train.
        settings: of the method.
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
        """Over the student: its head at the rate of the schedule, its trunk at a part of that."""
        return schedule.build_optimizer(
            self.network.student.parameter_groups(schedule.lr, self._backbone_lr_factor)
        )

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Labeled, weak and strong views; the latter two of one base crop."""
        return labeled_weak_strong(batch, self._labeled_views, self._unlabeled_views)

    def outputs(self, views: tuple[torch.Tensor, ...]) -> Any:
        """Of the student, all views in one batch."""
        return self.network.student(torch.cat(views)).split([len(view) for view in views])

    @abc.abstractmethod
    def measure(self, outputs: Any, batch: Batch) -> dict[str, torch.Tensor]:
        """See `protocol.SemiSupervised`."""

    def after_step(self) -> None:
        """The average follows."""
        self.network.follow()

    def after_epoch(self) -> None:  # noqa: B027  # an epoch means nothing to most
        """Nothing follows an epoch."""

    def pairs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """Weak views and what the average predicts of them, strong views and what the student does."""
        return self.predicted(*self.views(batch)[1:])

    def predicted(self, weak: torch.Tensor, strong: torch.Tensor) -> tuple[np.ndarray, ...]:
        """See `pairs`."""
        self.network.eval()
        with torch.no_grad():
            predictions = [
                self.objective.predictions(network(view))
                for network, view in ((self.model, weak), (self.network.student, strong))
            ]
        return tuple(x.cpu().numpy() for x in (weak, strong, *predictions))
