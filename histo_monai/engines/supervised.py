"""Supervised fine-tuning: the whole network trains on the labeled patches (paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine

from histo_monai.engines.device import in_memory_order, precision, to_device
from histo_monai.engines.fit import Records, fit
from histo_monai.engines.handlers import BestState, attach_step_decay
from histo_monai.engines.means import attach_means
from histo_monai.engines.prediction import build_evaluator, predict
from histo_monai.engines.task import Task
from histo_monai.loading.labeled import LabeledLoader
from histo_monai.networks.task_model import TaskModel
from histo_monai.randomness import Step
from histo_monai.schedule import Schedule
from histo_monai.transforms.supervised import SupervisedAugmentation

NUM_SHOWN = 24
"""Validation patches in a picture."""

Picture = Callable[[np.ndarray, np.ndarray, Sequence[float]], np.ndarray]
"""(patches (n, 3, H, H) uint8, predictions (n, K), targets) -> (H, W, 3) uint8."""


@dataclass(frozen=True)
class FinetuneResult:
    """What a fine-tuning leaves; the model that was handed over holds the weights that were kept.

    Attributes:
        curves: one row per epoch: epoch, lr, train_loss, ..., validation_loss, ...
        best_epoch: whose weights were kept.
        validation: means over the validation patches, with the weights kept.
        picture: some validation patches with the answers of the kept model, (H, W, 3) uint8.
    """

    curves: list[dict[str, float]]
    best_epoch: int
    validation: dict[str, float]
    picture: np.ndarray


def finetune(
    model: TaskModel,
    task: Task,
    labeled: LabeledLoader,
    validation: LabeledLoader,
    *,
    schedule: Schedule,
    seed: int,
    picture: Picture,
    records: Records,
) -> FinetuneResult:
    """Train all layers; leave the weights of the best validation (`Objective.rank`) in `model`.

    CUDA uses bfloat16 autocast and channels-last.

    Args:
        model: moved to the task's device.
        task: loss, measures and the rule of selection.
        labeled: what is trained on, shuffled.
        validation: in a fixed order.
        schedule: see `Schedule`.
        seed: of the augmentation.
        picture: draws some validation patches for TensorBoard.
        records: where traces are left.

    Raises:
        ArithmeticError: the loss is not finite.
    """
    to_device(model, task.device)
    optimizer = schedule.build_optimizer(model.parameters())
    trainer = Engine(_step(model, task, labeled.targets, optimizer, seed))
    attach_means(trainer, task.objective.MEASURES)
    attach_step_decay(trainer, optimizer, schedule.milestones)
    evaluator = build_evaluator(lambda views: model.eval()(views), task, validation.targets)
    best = BestState(model)
    shown, targets = validation.some(NUM_SHOWN)

    def draw() -> np.ndarray:
        predictions = predict(model, task, [(shown, None)])
        return picture(shown.squeeze(1).numpy(), predictions.numpy(), targets.tolist())

    curves = fit(
        trainer,
        evaluator,
        labeled.loader,
        validation.loader,
        epochs=schedule.epochs,
        optimizer=optimizer,
        parts={"network": model, "optimizer": optimizer},
        best=best,
        rank=task.objective.rank,
        picture=draw,
        samples_per_step=labeled.batch_size,
        records=records,
    )
    evaluator.run(validation.loader)
    return FinetuneResult(curves, best.epoch, dict(evaluator.state.metrics), draw())


def _step(
    model: TaskModel, task: Task, targets: torch.Tensor, optimizer: torch.optim.Optimizer, seed: int
) -> Any:
    augment = SupervisedAugmentation(task.patch_px)

    def step(engine: Engine, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        model.train()
        patches, rows = batch
        now = Step(seed, engine.state.epoch, engine.state.iteration)
        augment.set_random_state(now.derive_seed("augmentation"))
        views = augment(patches.to(task.device, non_blocking=True)).squeeze(1)
        with precision(task.device):
            outputs = model(in_memory_order(views, task.device))
        measured = task.objective.measure(outputs, targets[rows].to(task.device, non_blocking=True))
        optimizer.zero_grad(set_to_none=True)
        measured["loss"].mean().backward()
        optimizer.step()
        return {name: values.detach() for name, values in measured.items()}

    return step
