"""Supervised fine-tuning on labeled patches (paper, section 3.2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine
from torch import nn

from histo_monai.data.loaders.labeled import NUM_SHOWN, LabeledLoader
from histo_monai.finetuning.trainable import (
    FixedStatistics,
    Mode,
    add_adapters,
    fix_statistics,
    freeze,
    share_inputs,
)
from histo_monai.models.average import StudentAndAverage
from histo_monai.models.shared_rows import SharedRows
from histo_monai.models.sharing.copies import TrainedState, copy_sharing, frozen_parameters, separate
from histo_monai.models.task_model import TaskModel
from histo_monai.training.device import in_memory_order, precision, seed_random_layers, to_device
from histo_monai.training.evaluator import build_evaluator
from histo_monai.training.fit import Records, fit
from histo_monai.training.graphs import EncoderGraphs
from histo_monai.training.handlers import AverageFollows, BestState, ScheduledRates
from histo_monai.training.interpolation import Candidates, Interpolation, Measures, Rank
from histo_monai.training.means import attach_means
from histo_monai.training.prediction import predict, take_statistics
from histo_monai.training.schedule import Schedule
from histo_monai.training.task import Task
from histo_monai.transforms.supervised import SupervisedAugmentation
from histo_monai.utils.randomness import Step, derive_seed
from histo_monai.utils.ranks import num_ranks

Picture = Callable[[np.ndarray, np.ndarray, Sequence[float]], np.ndarray]
"""(patches (n, 3, H, H) uint8, predictions (n, K), targets) -> (H, W, 3) uint8."""


@dataclass(frozen=True)
class Tuning:
    """Fine-tuning settings; the defaults are the Srinidhi 2022 protocol: one learning rate, best epoch.

    Attributes:
        backbone_lr_factor: learning rate of the backbone, relative to the head's.
        unaugmented_fraction: fraction of unaugmented views, 0..1.
        stain_jitter: of augmented views, for `SupervisedAugmentation`.
        ema_decay: of the average of weights, which predicts after the last epoch; None: the best epoch predicts.
        interpolation_weights: with an average, candidate weights of the start, 0..1, for `Interpolation`.
        mode: which layers train (`trainable`).
        fixed_statistics: batch-norms whose statistics do not change.
    """

    backbone_lr_factor: float = 1.0
    unaugmented_fraction: float = 0.0
    stain_jitter: float = 0.0
    ema_decay: float | None = None
    interpolation_weights: tuple[float, ...] = (0.0,)
    mode: Mode = "all"
    fixed_statistics: FixedStatistics = "none"


@dataclass(frozen=True)
class FinetuneResult:
    """Result of a fine-tuning; the model holds the selected weights.

    Attributes:
        curves: one row per epoch: epoch, lr, train_loss, ..., validation_loss, ...
        candidates: epochs, or interpolation weights of the start, with their means over the validation patches; empty
            without validation.
        selected: the selected candidate.
        best_epoch: epoch of the weights, or last epoch of their average; 0 without a step.
        picture: validation patches, or labeled patches without validation, with predictions, (H, W, 3) uint8.
        interpolation: interpolation between model and start; None where epochs are the candidates.
    """

    curves: list[dict[str, float]]
    candidates: Candidates
    selected: float
    best_epoch: int
    picture: np.ndarray
    interpolation: Interpolation | None

    @property
    def validation(self) -> Measures:
        """Means over the validation patches with the selected weights; empty without validation."""
        return self.candidates.get(self.selected, {})


def finetune(
    model: TaskModel,
    task: Task,
    labeled: LabeledLoader,
    validation: LabeledLoader | None,
    *,
    schedule: Schedule,
    seed: int,
    picture: Picture,
    records: Records,
    tuning: Tuning = Tuning(),
    statistics: LabeledLoader | None = None,
    selected: float | None = None,
) -> FinetuneResult:
    """Train the layers of `Tuning.mode`; `model` ends with the selected weights.

    Frozen parameters are not copied: model, start and average share their memory. Adapters stay apart from their
    weights (`models.layers.merged_state` merges them).

    Candidates are the epochs or, with an average of weights, `Tuning.interpolation_weights`, ranked by
    `Objective.rank`. Runs in each process of `ignite.distributed`; their number does not change the training
    (`models.shared_rows`).

    Args:
        model: moved to the task's device.
        labeled: training patches, shuffled.
        validation: in a fixed order; selects. None: `selected` is given, or there is one candidate.
        picture: draws validation patches for TensorBoard.
        statistics: patches of the selected model's batch-norm statistics (`take_statistics`); None: those of training
            stay.
        selected: a candidate that was selected before. Only its steps are run.

    Raises:
        ArithmeticError: the loss is not finite.
        ValueError: there are several interpolation weights and no validation.
    """
    is_averaged = tuning.ema_decay is not None
    points = tuning.interpolation_weights if selected is None else (selected,)
    schedule = shortened(schedule, points, selected, is_averaged, validation is not None)
    frozen = _frozen(model, tuning.mode, seed)
    start = copy_sharing(model, frozen) if is_averaged else None
    average = None if tuning.ema_decay is None else StudentAndAverage(model, tuning.ema_decay)
    student = average.student if average else model
    network: nn.Module = average or model
    state = TrainedState(network, frozen)
    to_device(network, task.device)
    shared = SharedRows(network, task.device)
    optimizer = schedule.optimizer_for(student, student.encoder, tuning.backbone_lr_factor)
    step = _Step(student, task, labeled.targets, optimizer, seed, tuning, shared)
    trainer = build_trainer(step, task.objective.MEASURES, optimizer, schedule)
    if average:
        AverageFollows(average).attach(trainer)
    measured = validation or labeled
    evaluator = build_evaluator(lambda views: model.eval()(views), task, measured.targets)
    best = None if average or validation is None else BestState(state)
    draw = _drawing(model, task, measured, picture)
    curves = fit(
        trainer,
        evaluator,
        labeled.loader if schedule.epochs else None,
        validation.loader if validation else None,
        epochs=schedule.epochs,
        optimizer=optimizer,
        parts={"network": state, "optimizer": optimizer},
        best=best,
        rank=task.objective.rank,
        pictures={"answers": draw},
        images_per_step=labeled.batch_size // num_ranks(),
        records=records,
    )
    model.requires_grad_(True)
    if start is None:
        epoch = best.epoch if best else schedule.epochs
        candidates = epoch_candidates(curves) if validation else {}
        return FinetuneResult(curves, candidates, float(epoch), epoch, draw(), None)
    share_inputs(start, model)
    between = Interpolation(model, start, _finishing(model, task, shared, statistics))
    candidates = select_on(between, points, evaluator, validation, task.objective.rank)
    return FinetuneResult(curves, candidates, between.start_weight, schedule.epochs, draw(), between)


def _finishing(
    model: TaskModel, task: Task, shared: SharedRows, statistics: LabeledLoader | None
) -> Callable[[], None]:
    """Function that renews the model's batch-norm statistics; no effect without patches."""

    def finish() -> None:
        if statistics:
            with shared.divided():
                take_statistics(model, task, statistics)

    return finish


def _frozen(model: TaskModel, mode: Mode, seed: int) -> list[nn.Parameter]:
    """Frozen parameters in a mode; all other parameters get memory of their own, or are adapters that are added."""
    add_adapters(model, mode, derive_seed(seed, "adapters"))
    freeze(model, mode)
    if mode != "all":
        separate(model)
    return frozen_parameters(model)


def build_trainer(
    step: Callable[[Engine, Any], Any],
    measures: Sequence[str],
    optimizer: torch.optim.Optimizer,
    schedule: Schedule,
) -> Engine:
    """Engine over batches, with means of the measures and scheduled learning rates."""
    trainer = Engine(step)
    attach_means(trainer, measures)
    ScheduledRates(optimizer, schedule).attach(trainer)
    return trainer


def _drawing(
    model: TaskModel, task: Task, patches: LabeledLoader, picture: Picture
) -> Callable[[], np.ndarray]:
    """Function that draws patches with the model's present predictions."""
    shown, targets = patches.some(NUM_SHOWN)

    def draw() -> np.ndarray:
        predictions = predict(model, task, [(shown, None)])
        return picture(shown.squeeze(1).numpy(), predictions.numpy(), targets.tolist())

    return draw


def select_on(
    interpolation: Interpolation,
    points: Sequence[float],
    evaluator: Engine,
    validation: LabeledLoader | None,
    rank: Rank,
) -> dict[float, Measures]:
    """Move to the point of the lowest rank on validation patches; without validation, to the only point.

    Returns:
        Measures at each point; empty without validation patches.
    """
    if validation is None:
        interpolation.move(points[0])
        return {}
    loader = validation.loader

    def measure() -> Measures:
        evaluator.run(loader)
        return dict(evaluator.state.metrics)

    return interpolation.select(points, measure, rank)


def epoch_candidates(curves: Sequence[dict[str, float]]) -> dict[float, Measures]:
    """Epoch -> means over the validation patches, from the rows of curves."""
    prefix = "validation_"
    return {
        row["epoch"]: {
            name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)
        }
        for row in curves
    }


def shortened(
    schedule: Schedule,
    points: tuple[float, ...],
    selected: float | None,
    is_averaged: bool,
    is_validated: bool,
) -> Schedule:
    """Schedule up to the selected epoch; zero epochs where the start itself is selected.

    Raises:
        ValueError: there are several interpolation weights and no validation.
    """
    if is_averaged and not is_validated and len(points) > 1:
        raise ValueError(f"no validation patch selects one of interpolation_weights {points}")
    if selected is None:
        return schedule
    if is_averaged:
        return dataclasses.replace(schedule, epochs=0) if selected == 1 else schedule
    return dataclasses.replace(schedule, epochs=int(selected))


class _Step:
    """One step of the optimizer; called by the engine with a batch."""

    def __init__(
        self,
        model: TaskModel,
        task: Task,
        targets: torch.Tensor,
        optimizer: torch.optim.Optimizer,
        seed: int,
        tuning: Tuning,
        shared: SharedRows,
    ) -> None:
        self._model = model
        self._task = task
        self._targets = targets.to(task.device)
        self._shared = shared
        self._graphs = EncoderGraphs(model, task.device)
        self._optimizer = optimizer
        self._seed = seed
        self._fixed_statistics = tuning.fixed_statistics
        self._augment = SupervisedAugmentation(
            task.patch_px, unaugmented_fraction=tuning.unaugmented_fraction, stain_jitter=tuning.stain_jitter
        )

    def __call__(self, engine: Engine, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Run views, outputs, loss and optimizer step; returns measures, each of shape (n,)."""
        self._model.train()
        fix_statistics(self._model, self._fixed_statistics)
        device = self._task.device
        patches, rows = (self._shared.all_rows(part.to(device, non_blocking=True)) for part in batch)
        now = Step(self._seed, engine.state.epoch, engine.state.iteration)
        self._augment.set_random_state(now.derive_seed("augmentation"))
        views = self._augment(patches).squeeze(1)
        seed_random_layers(now, device)
        with precision(device), self._shared.divided(), self._graphs:
            outputs = self._model(in_memory_order(views, device))
        measured = self._task.objective.measure(outputs, self._targets[rows])
        self._optimizer.zero_grad(set_to_none=True)
        measured["loss"].mean().backward()
        self._shared.sum_gradients()
        self._optimizer.step()
        return {name: values.detach() for name, values in measured.items()}
