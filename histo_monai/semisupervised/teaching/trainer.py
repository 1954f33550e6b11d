"""Training of semi-supervised methods on labeled and unlabeled patches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events

from histo_monai.data.loaders.labeled import HiddenLabels, LabeledLoader
from histo_monai.data.loaders.streams import SideBySide
from histo_monai.finetuning.trainer import build_trainer, epoch_candidates, select_on, shortened
from histo_monai.models.shared_rows import SharedRows
from histo_monai.models.sharing.copies import TrainedState, common_parameters
from histo_monai.models.task_model import TaskModel
from histo_monai.semisupervised.protocol import PSEUDO_LABELS, Batch, SemiSupervised
from histo_monai.semisupervised.teaching.class_proportions import adapt
from histo_monai.training.device import in_memory_order, precision, seed_random_layers, to_device
from histo_monai.training.evaluator import build_evaluator
from histo_monai.training.fit import Records, fit
from histo_monai.training.graphs import EncoderGraphs
from histo_monai.training.handlers import BestState
from histo_monai.training.interpolation import Candidates, Interpolation, Measures
from histo_monai.training.schedule import Schedule
from histo_monai.training.task import Task
from histo_monai.utils.randomness import Step
from histo_monai.utils.ranks import num_ranks

NUM_SHOWN = 8
"""Pairs of views in a picture."""

Measured = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
"""Values (n,), or values and a mask of the values that count."""

PairPicture = Callable[..., np.ndarray]
"""(weak (n, 3, P, P) float, strong, predictions of the weak views (n, K), of the strong) -> (H, W, 3) uint8."""


@dataclass(frozen=True)
class StudentResult:
    """Result of a semi-supervised training; the method's model holds the selected weights.

    Attributes:
        curves: one row per epoch: epoch, lr, train_..., validation_....
        candidates: interpolation weights of the start, or epochs, with their means over the validation patches; empty
            without validation.
        selected: the selected candidate.
        is_start: whether the student equals its start model.
        picture: weak and strong views of unlabeled patches with predictions, (H, W, 3) uint8.
        interpolation: interpolation between student and start; None where epochs are the candidates.
    """

    curves: list[dict[str, float]]
    candidates: Candidates
    selected: float
    is_start: bool
    picture: np.ndarray
    interpolation: Interpolation | None

    @property
    def validation(self) -> Measures:
        """Means over the validation patches with the selected weights; empty without validation."""
        return self.candidates.get(self.selected, {})


def train_student(
    method: SemiSupervised,
    task: Task,
    labeled: LabeledLoader,
    unlabeled: LabeledLoader,
    validation: LabeledLoader | None,
    *,
    schedule: Schedule,
    seed: int,
    picture: PairPicture,
    records: Records,
    statistics: LabeledLoader | None = None,
    proportions: torch.Tensor | None = None,
    start: TaskModel | None = None,
    interpolation_weights: Sequence[float] = (0.0,),
    selects_epoch: bool = False,
    selected: float | None = None,
    hidden: HiddenLabels | None = None,
    pseudo_labels: torch.Tensor | None = None,
) -> StudentResult:
    """Train a method; its model ends as the student.

    Candidates are `interpolation_weights` or epochs, ranked by `Objective.rank`. Runs in each process of
    `ignite.distributed`; their number does not change the training (`models.shared_rows`).

    Args:
        labeled: batches with labels.
        unlabeled: an equal number of batches without labels; they include the labeled patches.
        validation: measured after each epoch; selects. None: `selected` is given, or there is one candidate.
        statistics: patches of the student's batch-norm statistics (`take_statistics`); None: those of training stay.
        proportions: class proportions of `statistics` to restore (`match_class_proportions`); None: the student's own.
        start: model to interpolate with; None: the method's model before training.
        interpolation_weights: 0..1, weights of the start to select from.
        selects_epoch: whether epochs are the candidates; epoch 0 is the start.
        selected: a candidate that was selected before. Only its steps are run.
        hidden: labels that pseudo labels are compared with; None: no comparison.
        pseudo_labels: pseudo labels of the unlabeled rows, for a method with `needs_neighbors`.

    Raises:
        ArithmeticError: the loss is not finite.
        ValueError: there are several interpolation weights and no validation.
    """
    points = tuple(interpolation_weights) if selected is None else (selected,)
    schedule = shortened(schedule, points, selected, not selects_epoch, validation is not None)
    to_device(method.network, task.device)
    start = start or copy.deepcopy(method.model)
    state = partial(TrainedState, frozen=common_parameters(method.model, start))
    shared = SharedRows(method.network, task.device)
    optimizer = method.optimizer(schedule)
    step = StudentStep(
        method, task, labeled.targets, optimizer, seed, hidden, shared=shared, pseudo_labels=pseudo_labels
    )
    trainer = build_trainer(step, step.measures, optimizer, schedule)
    measured = validation or labeled
    evaluator = build_evaluator(lambda patches: method.model.eval()(patches), task, measured.targets)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, method.after_epoch)
    batches = SideBySide(labeled.loader, unlabeled.loader)
    shown, _ = unlabeled.some(NUM_SHOWN)
    best = _best_from_start(state(method.model), task, evaluator, validation) if selects_epoch else None
    candidates: dict[float, Measures] = {0.0: dict(evaluator.state.metrics)} if best else {}
    curves = fit(
        trainer,
        evaluator,
        batches if schedule.epochs else None,
        validation.loader if validation else None,
        epochs=schedule.epochs,
        optimizer=optimizer,
        parts={"method": state(method.network), "optimizer": optimizer},
        best=best,
        rank=task.objective.rank,
        pictures={"pairs": lambda: picture(*step.show(shown))},
        images_per_step=batches.images_per_step // num_ranks(),
        records=records,
    )
    if selects_epoch:
        candidates |= epoch_candidates(curves) if validation else {}
        epoch = best.epoch if best else schedule.epochs
        return StudentResult(curves, candidates, float(epoch), epoch == 0, picture(*step.show(shown)), None)
    between = Interpolation(method.model, start, _finishing(method, task, shared, statistics, proportions))
    candidates = select_on(between, points, evaluator, validation, task.objective.rank)
    at = between.start_weight
    return StudentResult(curves, candidates, at, at == 1, picture(*step.show(shown)), between)


def _finishing(
    method: SemiSupervised,
    task: Task,
    shared: SharedRows,
    statistics: LabeledLoader | None,
    proportions: torch.Tensor | None,
) -> Callable[[], None]:
    """Function that renews the student's batch-norm statistics and class proportions; no effect without patches."""

    def finish() -> None:
        if statistics:
            with shared.divided():
                adapt(method.model, task, statistics, proportions)

    return finish


def _best_from_start(
    network: TrainedState, task: Task, evaluator: Engine, validation: LabeledLoader | None
) -> BestState | None:
    """Best weights so far, with the start as epoch 0; None without validation patches."""
    if validation is None:
        return None
    evaluator.run(validation.loader)
    best = BestState(network)
    best.offer(task.objective.rank(evaluator.state.metrics), 0)
    return best


class StudentStep:
    """One step of the optimizer; called by the engine with a labeled and an unlabeled batch.

    Args:
        hidden: labels that pseudo labels are compared with; never used in training.
        shared: processes that divide the encoder's rows; None: all.
        pseudo_labels: pseudo labels by row of the unlabeled table (`protocol.Batch`); None without `needs_neighbors`.

    Attributes:
        measures: keys of a call: the method's, and the quality of pseudo labels, over all patches with a hidden label
            and over the patches that count in the loss.
    """

    def __init__(
        self,
        method: SemiSupervised,
        task: Task,
        targets: torch.Tensor,
        optimizer: torch.optim.Optimizer,
        seed: int,
        hidden: HiddenLabels | None = None,
        *,
        shared: SharedRows | None = None,
        pseudo_labels: torch.Tensor | None = None,
    ) -> None:
        self._device = task.device
        self._shared = shared or SharedRows(method.network, task.device)
        self._graphs = EncoderGraphs(method.network, task.device)
        self._of_method = tuple(name for name in method.measures if name != PSEUDO_LABELS)
        self.measures = self._of_method
        has_pseudo_labels = PSEUDO_LABELS in method.measures
        self._hidden = None
        if hidden is not None and has_pseudo_labels and bool(hidden.known.any()):
            self._hidden = HiddenLabels(self._to_device(hidden.targets), self._to_device(hidden.known))
        self._objective = task.objective
        if self._hidden is not None:
            self.measures += (task.objective.PSEUDO_LABEL_MEASURE,)
            if "used" in method.measures and task.objective.classes:
                self.measures += (f"used_{task.objective.PSEUDO_LABEL_MEASURE}",)
        self._method = method
        self._targets = targets.to(task.device)
        self._pseudo_labels = None if pseudo_labels is None else pseudo_labels.to(task.device)
        self._optimizer = optimizer
        self._seed = seed

    def __call__(self, engine: Engine, pair: Any) -> dict[str, Measured]:
        """Run views, outputs, loss and optimizer step; returns `measures` of the batch."""
        (labeled, rows), (unlabeled, unlabeled_rows) = (
            [self._shared.all_rows(self._to_device(part)) for part in parts] for parts in pair
        )
        self._method.network.train()
        step = Step(self._seed, engine.state.epoch, engine.state.iteration)
        given = None if self._pseudo_labels is None else self._pseudo_labels[unlabeled_rows]
        batch = Batch(labeled, self._targets[rows], unlabeled, step, given)
        views = self._method.views(batch)
        seed_random_layers(step, self._device)
        with precision(self._device), self._shared.divided(), self._graphs:
            outputs = self._method.outputs(tuple(in_memory_order(view, self._device) for view in views))
        measured = self._method.measure(outputs, batch)
        self._optimizer.zero_grad(set_to_none=True)
        measured["loss"].mean().backward()
        self._shared.sum_gradients()
        self._optimizer.step()
        self._method.after_step()
        values: dict[str, Measured] = {name: measured[name].detach() for name in self._of_method}
        return values | self._pseudo_label_quality(measured, unlabeled_rows)

    def _pseudo_label_quality(
        self, measured: dict[str, torch.Tensor], rows: torch.Tensor
    ) -> dict[str, Measured]:
        """Quality of a batch's pseudo labels, with masks of the patches that count."""
        if self._hidden is None:
            return {}
        known, targets = self._hidden.known[rows], self._hidden.targets[rows]
        name, pseudo_labels = self._objective.PSEUDO_LABEL_MEASURE, measured[PSEUDO_LABELS].detach()
        quality = self._objective.pseudo_label_quality(pseudo_labels, targets)
        values: dict[str, Measured] = {name: (quality, known)}
        if f"used_{name}" in self.measures:
            values[f"used_{name}"] = (quality, known & (measured["used"] > 0))
        return values

    def show(self, patches: torch.Tensor) -> tuple[np.ndarray, ...]:
        """Views and predictions (`SemiSupervised.pairs`) of patches (n, 1, 3, P, P), uint8."""
        on_device = self._to_device(patches)
        with precision(self._device):
            return self._method.pairs(
                Batch(on_device, self._targets[:0], on_device, Step(self._seed, epoch=0, iteration=0))
            )

    def _to_device(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self._device, non_blocking=True)
