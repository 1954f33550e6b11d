"""Supervised fine-tuning: the whole network trains on the labeled patches (paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ignite.distributed as idist
import numpy as np
import torch
from ignite.engine import Engine
from torch import nn

from histo_monai.engines.device import in_memory_order, precision, to_device
from histo_monai.engines.fit import Records, fit
from histo_monai.engines.graphs import EncoderGraphs
from histo_monai.engines.handlers import AverageFollows, BestState, ScheduledRates
from histo_monai.engines.means import attach_means
from histo_monai.engines.prediction import build_evaluator, predict, take_statistics
from histo_monai.engines.task import Task
from histo_monai.loading.labeled import LabeledLoader
from histo_monai.networks.average import StudentAndAverage
from histo_monai.networks.shared_rows import SharedRows
from histo_monai.networks.task_model import TaskModel
from histo_monai.randomness import Step
from histo_monai.schedule import Schedule
from histo_monai.transforms.supervised import SupervisedAugmentation

NUM_SHOWN = 24
"""Validation patches in a picture."""

Picture = Callable[[np.ndarray, np.ndarray, Sequence[float]], np.ndarray]
"""(patches (n, 3, H, H) uint8, predictions (n, K), targets) -> (H, W, 3) uint8."""


@dataclass(frozen=True)
class Tuning:
    """How the parts of a model are fine-tuned; as it stands, the paper's way: all alike, and the best epoch is kept.

    Attributes:
        trunk_rate: learning rate of the trunk, in parts of the head's.
        plain_share: views that are not augmented, 0..1.
        stain: of the others, see `SupervisedAugmentation`.
        decay: of the average of weights, which is kept after the last epoch; None: the epoch of the best validation is.
    """

    trunk_rate: float = 1.0
    plain_share: float = 0.0
    stain: float = 0.0
    decay: float | None = None


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
    tuning: Tuning = Tuning(),
    statistics: LabeledLoader | None = None,
) -> FinetuneResult:
    """Train all layers; leave the weights of the best validation (`Objective.rank`), or their average, in `model`.

    Precision and order of memory: see `engines.device`. Runs in each process of `ignite.distributed`, see
    `networks.shared_rows`: their number does not change the training.

    Args:
        model: moved to the task's device.
        task: loss, measures and the rule of selection.
        labeled: what is trained on, shuffled.
        validation: in a fixed order.
        schedule: see `Schedule`.
        seed: of the augmentation.
        picture: draws some validation patches for TensorBoard.
        records: where traces are left.
        tuning: see `Tuning`.
        statistics: what the model that is kept takes the statistics of its batch-norms from, see `take_statistics`;
            None: those of training stay.

    Raises:
        ArithmeticError: the loss is not finite.
    """
    average = None if tuning.decay is None else StudentAndAverage(model, tuning.decay)
    network: nn.Module = average or model
    student = average.student if average else model
    to_device(network, task.device)
    shared = SharedRows(network, task.device)
    optimizer = schedule.build_optimizer(student.parameter_groups(schedule.lr, tuning.trunk_rate))
    step = _Step(student, task, labeled.targets, optimizer, seed, tuning, shared)
    trainer = Engine(step)
    attach_means(trainer, task.objective.MEASURES)
    ScheduledRates(optimizer, schedule).attach(trainer)
    if average:
        AverageFollows(average).attach(trainer)
    evaluator = build_evaluator(lambda views: model.eval()(views), task, validation.targets)
    best = None if average else BestState(model)
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
        parts={"network": network, "optimizer": optimizer},
        best=best,
        rank=task.objective.rank,
        pictures={"answers": draw},
        images_per_step=labeled.batch_size // idist.get_world_size(),
        records=records,
    )
    if statistics:
        with shared.divided():
            take_statistics(model, task, statistics)
    evaluator.run(validation.loader)
    model.requires_grad_(True)  # the average had none
    kept = best.epoch if best else schedule.epochs
    return FinetuneResult(curves, kept, dict(evaluator.state.metrics), draw())


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
        self._augment = SupervisedAugmentation(
            task.patch_px, plain_share=tuning.plain_share, stain=tuning.stain
        )

    def __call__(self, engine: Engine, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Views, outputs, loss, step; what was measured, each of shape (n,)."""
        self._model.train()
        device = self._task.device
        patches, rows = (self._shared.all_rows(part.to(device, non_blocking=True)) for part in batch)
        now = Step(self._seed, engine.state.epoch, engine.state.iteration)
        self._augment.set_random_state(now.derive_seed("augmentation"))
        views = self._augment(patches).squeeze(1)
        with precision(device), self._shared.divided(), self._graphs:
            outputs = self._model(in_memory_order(views, device))
        measured = self._task.objective.measure(outputs, self._targets[rows])
        self._optimizer.zero_grad(set_to_none=True)
        measured["loss"].mean().backward()
        self._shared.sum_gradients()
        self._optimizer.step()
        return {name: values.detach() for name, values in measured.items()}
