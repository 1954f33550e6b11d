"""What methods share whose student trains whole, and whose average of weights predicts."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch

from histo_monai.losses import Objective
from histo_monai.networks.task_model import TaskModel
from histo_monai.schedule import Schedule
from histo_monai.semisupervised.average import StudentAndAverage
from histo_monai.semisupervised.protocol import Batch
from histo_monai.settings.rules import Fraction, NumberOf, Range, Unique
from histo_monai.transforms.randaugment import WeakStrongViews, strong_operations
from histo_monai.transforms.supervised import SupervisedAugmentation


@dataclass(frozen=True)
class StrongSettings:
    """Strong views, see `strong_operations`; params' `n_aug` is that of the paper's student alone.

    Attributes:
        num: operations of a view.
        magnitudes: smallest and largest, 1..10.
        operations: names of those that are drawn from.
        within_limits: magnitudes are limits, within which values are drawn; false: the values themselves.
        affine_scale: departure of the affine magnification from 1, at magnitudes 0 and 10.
        hue: the same of hue, fraction of a full turn.
    """

    num: Annotated[int, Range(1, 10)]
    magnitudes: Annotated[tuple[Annotated[int, Range(1, 10)], ...], NumberOf(2)]
    operations: Annotated[tuple[str, ...], Unique()]
    within_limits: bool
    affine_scale: Annotated[tuple[Annotated[float, Range(0.0, 0.99)], ...], NumberOf(2)]
    hue: Annotated[tuple[Annotated[float, Range(0.0, 0.5)], ...], NumberOf(2)]

    def views(self, patch_px: int) -> WeakStrongViews:
        """Weak and strong views of patches.

        Raises:
            InputError: a name is no operation, or fewer are named than a view takes.
        """
        operations = strong_operations(
            self.operations,
            limits=self.operations if self.within_limits else (),
            affine_scale=(self.affine_scale[0], self.affine_scale[1]),
            hue=(self.hue[0], self.hue[1]),
        )
        lowest, highest = self.magnitudes
        return WeakStrongViews(patch_px, self.num, (lowest, highest), operations=operations)


@dataclass(frozen=True)
class StudentSettings:
    """What all of these methods have.

    Attributes:
        weight: of the unlabeled loss.
        decay: of the average of weights.
        trunk_rate: learning rate of the trunk, in parts of the head's; at 0 only its batch-norm statistics move.
        plain_share: labeled views that are not augmented, 0..1: what is predicted later is not augmented either.
        strong: see `StrongSettings`.
    """

    weight: Annotated[float, Range(0.0)]
    decay: Annotated[float, Range(0.0, 0.9999)]
    trunk_rate: Annotated[float, Range(0.0, 10.0)]
    plain_share: Fraction
    strong: StrongSettings


class Student(abc.ABC):
    """See the module and `protocol.SemiSupervised`.

    Args:
        model: the fine-tuned model; holds the average of the student's weights.
        objective: classes or scores.
        patch_px: side of the views.
        n_aug: of the paper's student; not used here, see `StrongSettings`.
        settings: of the method.
    """

    Settings: ClassVar[type]
    measures: tuple[str, ...]

    def __init__(
        self, *, model: TaskModel, objective: Objective, patch_px: int, n_aug: int, settings: Any
    ) -> None:
        self.model = model
        self.network = StudentAndAverage(model, settings.decay)
        self.settings = settings
        self.objective = objective
        self._labeled_views = SupervisedAugmentation(patch_px, plain_share=settings.plain_share)
        self._unlabeled_views = settings.strong.views(patch_px)

    def optimizer(self, schedule: Schedule) -> torch.optim.Optimizer:
        """Over the student: its head at the rate of the schedule, its trunk at a part of that."""
        student = self.network.student
        return schedule.build_optimizer(
            [
                {"params": list(student.head.parameters())},
                {"params": list(student.encoder.parameters()), "lr": schedule.lr * self.settings.trunk_rate},
            ]
        )

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Labeled, weak and strong views; the latter two of one base crop."""
        self._labeled_views.set_random_state(batch.step.derive_seed("augmentation"))
        self._unlabeled_views.set_random_state(batch.step.derive_seed("weak and strong"))
        weak, strong = self._unlabeled_views(batch.unlabeled)
        return self._labeled_views(batch.labeled).squeeze(1), weak.squeeze(1), strong.squeeze(1)

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
        self.network.eval()
        _, weak, strong = self.views(batch)
        with torch.no_grad():
            predictions = [
                self.objective.predictions(network(view))
                for network, view in ((self.model, weak), (self.network.student, strong))
            ]
        return tuple(x.cpu().numpy() for x in (weak, strong, *predictions))
