"""Teacher-student consistency training on labeled and unlabeled patches (paper, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from ignite.engine import Engine, Events
from torch import nn
from torch.utils.data import DataLoader

from histo_monai.datasets.streams import SideBySide
from histo_monai.engines.device import in_memory_order, precision, to_device
from histo_monai.engines.fit import Records, fit
from histo_monai.engines.handlers import attach_step_decay
from histo_monai.engines.labeled import (
    LabeledLoader,
    LabeledTask,
    Schedule,
    build_evaluator,
    some_patches,
)
from histo_monai.engines.means import attach_means
from histo_monai.engines.supervised import Training
from histo_monai.networks.task_model import TaskModel
from histo_monai.networks.teacher_student import TeacherStudent
from histo_monai.randomness import Step
from histo_monai.transforms.randaugment import WeakStrongViews
from histo_monai.transforms.supervised import SupervisedAugmentation

NUM_SHOWN = 8
"""Pairs of views in a picture."""

PairPicture = Callable[..., np.ndarray]
"""(weak (n, 3, P, P) float, strong, teacher's predictions (n, K), student's) -> (H, W, 3) uint8."""


@dataclass(frozen=True)
class ConsistencyResult:
    """What consistency training leaves; the pair that was handed over holds the last student.

    Attributes:
        curves: one row per epoch: epoch, lr, train_..., validation_....
        validation: means over the validation patches, of the last student.
        picture: weak and strong views of some unlabeled patches, with what teacher and student say, (H, W, 3) uint8.
    """

    curves: list[dict[str, float]]
    validation: dict[str, float]
    picture: np.ndarray


@dataclass(frozen=True)
class ConsistencyViews:
    """How the three kinds of views are made.

    Attributes:
        labeled: of the labeled images (eta in the paper).
        unlabeled: weak and strong views of one base crop.
    """

    labeled: SupervisedAugmentation
    unlabeled: WeakStrongViews

    def draw(
        self, labeled: torch.Tensor, unlabeled: torch.Tensor, now: Step
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(B, 1, 3, P, P) and (mu B, 1, 3, P, P) uint8 -> labeled, weak and strong views, each (n, 3, P, P) float32."""
        self.labeled.set_random_state(now.derive_seed("augmentation"))
        self.unlabeled.set_random_state(now.derive_seed("weak and strong"))
        weak, strong = self.unlabeled(unlabeled)
        return self.labeled(labeled).squeeze(1), weak.squeeze(1), strong.squeeze(1)


def teach_student(
    model: TaskModel,
    task: LabeledTask,
    labeled: pd.DataFrame,
    unlabeled: pd.DataFrame,
    validation: pd.DataFrame,
    training: Training,
    *,
    mu: int,
    n_aug: int,
    weight: float,
    picture: PairPicture,
    records: Records,
) -> ConsistencyResult:
    """Consistency training from a fine-tuned model; leaves the last student in it.

    Args:
        model: teacher and student at the start.
        task: what is learned.
        labeled: rows of `task.patches` whose labels are used.
        unlabeled: rows whose labels are not looked at, the labeled ones among them.
        validation: rows that are measured after each epoch.
        training: see `Training`.
        mu: unlabeled images per labeled one.
        n_aug: operations of the strong view.
        weight: lambda of the paper.
        picture: draws weak and strong pairs.
        records: where traces are left.

    Raises:
        ArithmeticError: the loss is not finite.
    """
    per_step = mu * training.batch_size
    steps = max(-(-len(labeled) // training.batch_size), -(-len(unlabeled) // per_step))
    stream = partial(task.shuffled, seed=training.seed, num_batches=steps)
    return train_consistency(
        TeacherStudent(model),
        task,
        stream(labeled, training.batch_size, purpose="labeled"),
        stream(unlabeled, per_step, purpose="unlabeled").loader,
        task.in_order(validation, training.predict_batch_size),
        weight=weight,
        views=ConsistencyViews(SupervisedAugmentation(task.patch_px), WeakStrongViews(task.patch_px, n_aug)),
        schedule=training.schedule,
        seed=training.seed,
        picture=picture,
        records=records,
    )


def train_consistency(
    pair: TeacherStudent,
    task: LabeledTask,
    labeled: LabeledLoader,
    unlabeled: DataLoader[Any],
    validation: LabeledLoader,
    *,
    weight: float,
    views: ConsistencyViews,
    schedule: Schedule,
    seed: int,
    picture: PairPicture,
    records: Records,
) -> ConsistencyResult:
    """Train the student's head; leave the last student in `pair`.

    Loss = mean over the labeled images + `weight` times the mean consistency over the unlabeled ones. At the end of
    each epoch the student becomes the teacher.

    Args:
        pair: moved to the task's device.
        task: both losses.
        labeled: full batches, shuffled.
        unlabeled: as many batches, mu times as large; whose labels are not looked at.
        validation: in a fixed order.
        weight: lambda of the paper.
        views: see `ConsistencyViews`.
        schedule: see `Schedule`.
        seed: of the augmentations.
        picture: draws weak and strong pairs for TensorBoard.
        records: where traces are left.

    Raises:
        ArithmeticError: the loss is not finite.
        ValueError: there are not as many labeled as unlabeled batches.
    """
    to_device(pair, task.device)
    optimizer = schedule.build_optimizer(pair.student.parameters())
    train = ConsistencyStep(pair, task, labeled.targets, weight, views, optimizer, seed)
    trainer = Engine(train)
    attach_means(trainer, train.measures)
    attach_step_decay(trainer, optimizer, schedule.milestones)
    student = nn.Sequential(pair.encoder, pair.student)
    evaluator = build_evaluator(lambda patches: student.eval()(patches), task, validation.targets)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, pair.replace_teacher)
    batches = SideBySide(labeled.loader, unlabeled)
    shown = some_patches(unlabeled, NUM_SHOWN)
    curves = fit(
        trainer,
        evaluator,
        batches,
        validation.loader,
        epochs=schedule.epochs,
        optimizer=optimizer,
        parts={"pair": pair, "optimizer": optimizer},
        best=None,
        rank=task.objective.rank,
        picture=lambda: picture(*train.show(shown)),
        samples_per_step=batches.images_per_step,
        records=records,
    )
    evaluator.run(validation.loader)
    return ConsistencyResult(curves, dict(evaluator.state.metrics), picture(*train.show(shown)))


class ConsistencyStep:
    """One optimiser step; called by the engine with a labeled and an unlabeled batch.

    Args:
        pair: teacher and student.
        task: both losses.
        targets: of the labeled rows.
        weight: lambda.
        views: see `ConsistencyViews`.
        optimizer: over the student's parameters.
        seed: of the augmentations.

    Attributes:
        measures: what a step reports, each Shape (n,).
    """

    def __init__(
        self,
        pair: TeacherStudent,
        task: LabeledTask,
        targets: torch.Tensor,
        weight: float,
        views: ConsistencyViews,
        optimizer: torch.optim.Optimizer,
        seed: int,
    ) -> None:
        self._pair = pair
        self._objective = task.objective
        self._device = task.device
        self._targets = targets
        self._weight = weight
        self._views = views
        self._optimizer = optimizer
        self._seed = seed
        self._quality = quality = task.objective.MEASURES[1]
        pseudo = task.objective.PSEUDO_MEASURES
        self.measures = ("loss", "supervised", "consistency", quality, f"teacher_{quality}", *pseudo)

    def __call__(self, engine: Engine, batch: Any) -> dict[str, torch.Tensor]:
        """Both forward passes, the loss, the student's step."""
        (labeled, rows), (unlabeled, _) = batch
        self._pair.train()
        now = Step(self._seed, engine.state.epoch, engine.state.iteration)
        views = self._views.draw(self._here(labeled), self._here(unlabeled), now)
        targets, num = self._here(self._targets[rows]), len(rows)
        with precision(self._device):
            features = self._pair.features(in_memory_order(torch.cat(views), self._device))
            of_labeled, of_weak, of_strong = features.split([len(view) for view in views])
            with torch.no_grad():
                teacher = self._pair.teacher(torch.cat([of_labeled, of_weak]))
            student = self._pair.student(torch.cat([of_labeled, of_strong]))
        measured = self._objective.measure(student[:num], targets)
        consistency = self._objective.consistency(student[num:], teacher[num:])
        loss = measured["loss"].mean() + self._weight * consistency.mean()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        return {
            "loss": loss.detach().unsqueeze(0),
            "supervised": measured["loss"].detach(),
            "consistency": consistency.detach(),
            self._quality: measured[self._quality].detach(),
            f"teacher_{self._quality}": self._objective.measure(teacher[:num], targets)[self._quality],
            **self._objective.pseudo_measure(student[num:].detach(), teacher[num:]),
        }

    def show(self, patches: torch.Tensor) -> tuple[np.ndarray, ...]:
        """(n, 1, 3, P, P) uint8 -> weak views, strong views (n, 3, P, P), and what teacher and student say (n, K)."""
        self._pair.eval()
        here = self._here(patches)
        _, weak, strong = self._views.draw(here, here, Step(self._seed, epoch=0, iteration=0))
        said = []
        for head, view in ((self._pair.teacher, weak), (self._pair.student, strong)):
            with torch.no_grad(), precision(self._device):
                said.append(head(self._pair.features(in_memory_order(view, self._device))))
        predictions = [self._objective.predictions(outputs) for outputs in said]
        return tuple(x.cpu().numpy() for x in (weak, strong, *predictions))

    def _here(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self._device, non_blocking=True)
