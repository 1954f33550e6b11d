"""Semi-supervised training: a method of `histo_monai.semisupervised` on labeled and unlabeled patches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ignite.distributed as idist
import numpy as np
import torch
from ignite.engine import Engine, Events

from histo_monai.data.loaders.labeled import HiddenLabels, LabeledLoader
from histo_monai.data.loaders.streams import SideBySide
from histo_monai.finetuning.trainer import build_trainer, epoch_candidates, select_on, shortened
from histo_monai.models.shared_rows import SharedRows
from histo_monai.models.task_model import TaskModel
from histo_monai.semisupervised.protocol import GUESSES, Batch, SemiSupervised
from histo_monai.semisupervised.teaching.class_proportions import adapt
from histo_monai.training.device import in_memory_order, precision, to_device
from histo_monai.training.fit import Records, fit
from histo_monai.training.graphs import EncoderGraphs
from histo_monai.training.handlers import BestState
from histo_monai.training.interpolation import Candidates, Interpolation, Measures
from histo_monai.training.prediction import build_evaluator
from histo_monai.training.schedule import Schedule
from histo_monai.training.task import Task
from histo_monai.utils.randomness import Step

NUM_SHOWN = 8
"""Pairs of views in a picture."""

Measured = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
"""Values (n,), or values and which of them count."""

PairPicture = Callable[..., np.ndarray]
"""(weak (n, 3, P, P) float, strong, predictions of the weak views (n, K), of the strong) -> (H, W, 3) uint8."""


@dataclass(frozen=True)
class StudentResult:
    """What a semi-supervised training leaves; the method's model holds the selected weights.

    Attributes:
        curves: one row per epoch: epoch, lr, train_..., validation_....
        candidates: weights of the start in the student, or epochs, with their means over the validation patches; empty
            without any.
        selected: of the candidates.
        is_start: whether the student is the model that it started from.
        picture: weak and strong views of some unlabeled patches, with the predictions of them, (H, W, 3) uint8.
        line: to move the student to another weight of the start; None where epochs are the candidates.
    """

    curves: list[dict[str, float]]
    candidates: Candidates
    selected: float
    is_start: bool
    picture: np.ndarray
    line: Interpolation | None

    @property
    def validation(self) -> Measures:
        """Means over the validation patches with the selected weights; empty without any."""
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
    shares: torch.Tensor | None = None,
    start: TaskModel | None = None,
    interpolation_weights: Sequence[float] = (0.0,),
    selects_epoch: bool = False,
    selected: float | None = None,
    hidden: HiddenLabels | None = None,
    guesses: torch.Tensor | None = None,
) -> StudentResult:
    """Run a method; its model holds the student afterwards.

    The candidates are points of `interpolation_weights` or the epochs, ranked by `Objective.rank`. Runs in
    each process of `ignite.distributed`, see `models.shared_rows`: their number does not change the training.

    Args:
        method: what trains; moved to the task's device.
        labeled: batches whose labels are used.
        unlabeled: as many batches, whose labels are not looked at; the labeled patches are among them.
        validation: measured after each epoch; selects. None: `selected` is given, or there is one candidate.
        schedule: see `Schedule`; of 0 epochs: no step is taken.
        picture: draws weak and strong pairs.
        statistics: what the student takes the statistics of its batch-norms from, see `take_statistics`; None:
            those of training stay.
        shares: that it ends with of `statistics`, see `semisupervised.teaching.class_proportions`; None: those that it
            came to.
        start: the model that the student came from, as it was; None: the method's model as it begins.
        interpolation_weights: 0..1, weights of the start in the student to select from, see `Interpolation`.
        selects_epoch: whether epochs are the candidates, 0 among them: the start.
        selected: the candidate, where it is known beforehand. No step is taken that it does not need.
        hidden: what guesses are held against, see `StudentStep`; None: they are not.
        guesses: of the unlabeled rows, for a method that asks for them, see `StudentStep`.

    Raises:
        ArithmeticError: the loss is not finite.
        ValueError: nothing selects one of several weights of the start.
    """
    points = tuple(interpolation_weights) if selected is None else (selected,)
    schedule = shortened(schedule, points, selected, not selects_epoch, validation is not None)
    to_device(method.network, task.device)
    start = start or copy.deepcopy(method.model)
    shared = SharedRows(method.network, task.device)
    optimizer = method.optimizer(schedule)
    step = StudentStep(method, task, labeled.targets, optimizer, seed, hidden, shared=shared, guesses=guesses)
    trainer = build_trainer(step, step.measures, optimizer, schedule)
    measured = validation or labeled
    evaluator = build_evaluator(lambda patches: method.model.eval()(patches), task, measured.targets)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, method.after_epoch)
    batches = SideBySide(labeled.loader, unlabeled.loader)
    shown, _ = unlabeled.some(NUM_SHOWN)
    best = _best_from_start(method, task, evaluator, validation) if selects_epoch and validation else None
    candidates: dict[float, Measures] = {0.0: dict(evaluator.state.metrics)} if best else {}
    curves = fit(
        trainer,
        evaluator,
        batches if schedule.epochs else None,
        validation.loader if validation else None,
        epochs=schedule.epochs,
        optimizer=optimizer,
        parts={"method": method.network, "optimizer": optimizer},
        best=best,
        rank=task.objective.rank,
        pictures={"pairs": lambda: picture(*step.show(shown))},
        images_per_step=batches.images_per_step // idist.get_world_size(),
        records=records,
    )
    if selects_epoch:
        if validation:
            candidates |= epoch_candidates(curves)
        epoch = best.epoch if best else schedule.epochs
        return StudentResult(curves, candidates, float(epoch), epoch == 0, picture(*step.show(shown)), None)

    finish = _finishing(method, task, shared, statistics, shares)
    line = Interpolation(method.model, start, finish)
    candidates = select_on(line, points, evaluator, validation, task.objective.rank)
    at = line.start_weight
    return StudentResult(curves, candidates, at, at == 1, picture(*step.show(shown)), line)


def _finishing(
    method: SemiSupervised,
    task: Task,
    shared: SharedRows,
    statistics: LabeledLoader | None,
    shares: torch.Tensor | None,
) -> Callable[[], None]:
    """Takes the student's statistics and class proportions anew, see `adapt`; nothing without patches for it."""

    def finish() -> None:
        if statistics:
            with shared.divided():
                adapt(method.model, task, statistics, shares)

    return finish


def _best_from_start(
    method: SemiSupervised, task: Task, evaluator: Engine, validation: LabeledLoader
) -> BestState:
    """The best weights so far: those that the student starts from, as epoch 0."""
    evaluator.run(validation.loader)
    best = BestState(method.model)
    best.offer(task.objective.rank(evaluator.state.metrics), 0)
    return best


class StudentStep:
    """One step of the optimizer; called by the engine with a labeled and an unlabeled batch.

    Args:
        targets: of the labeled rows.
        hidden: labels that guesses are held against; they reach nothing that trains.
        shared: by which processes; None: by those that there are.
        guesses: by row of the unlabeled table, see `protocol.Batch`; None where the method does not ask for them.

    Attributes:
        measures: what a call gives: the method's, and how good its guesses are: of all patches with a hidden label, and
            of those among them that the loss counts.
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
        guesses: torch.Tensor | None = None,
    ) -> None:
        self._device = task.device
        self._shared = shared or SharedRows(method.network, task.device)
        self._graphs = EncoderGraphs(method.network, task.device)
        self._of_method = tuple(name for name in method.measures if name != GUESSES)
        self.measures = self._of_method
        is_guessing = GUESSES in method.measures
        self._hidden = None
        if hidden is not None and is_guessing and bool(hidden.known.any()):
            self._hidden = HiddenLabels(self._here(hidden.targets), self._here(hidden.known))
        self._objective = task.objective
        if self._hidden is not None:
            self.measures += (task.objective.GUESS_MEASURE,)
            if "used" in method.measures and task.objective.classes:
                self.measures += (f"used_{task.objective.GUESS_MEASURE}",)
        self._method = method
        self._targets = targets.to(task.device)
        self._guesses = None if guesses is None else guesses.to(task.device)
        self._optimizer = optimizer
        self._seed = seed

    def __call__(self, engine: Engine, pair: Any) -> dict[str, Measured]:
        """Views, outputs, loss, step; `measures` of the batch."""
        (labeled, rows), (unlabeled, unlabeled_rows) = (
            [self._shared.all_rows(self._here(part)) for part in parts] for parts in pair
        )
        self._method.network.train()
        step = Step(self._seed, engine.state.epoch, engine.state.iteration)
        given = None if self._guesses is None else self._guesses[unlabeled_rows]
        batch = Batch(labeled, self._targets[rows], unlabeled, step, given)
        views = self._method.views(batch)
        with precision(self._device), self._shared.divided(), self._graphs:
            outputs = self._method.outputs(tuple(in_memory_order(view, self._device) for view in views))
        measured = self._method.measure(outputs, batch)
        self._optimizer.zero_grad(set_to_none=True)
        measured["loss"].mean().backward()
        self._shared.sum_gradients()
        self._optimizer.step()
        self._method.after_step()
        found: dict[str, Measured] = {name: measured[name].detach() for name in self._of_method}
        return found | self._of_guesses(measured, unlabeled_rows)

    def _of_guesses(self, measured: dict[str, torch.Tensor], rows: torch.Tensor) -> dict[str, Measured]:
        """How good the guesses of a batch are, and which of them count."""
        if self._hidden is None:
            return {}
        known, targets = self._hidden.known[rows], self._hidden.targets[rows]
        name, guesses = self._objective.GUESS_MEASURE, measured[GUESSES].detach()
        quality = self._objective.guess_quality(guesses, targets)
        found: dict[str, Measured] = {name: (quality, known)}
        if f"used_{name}" in self.measures:
            found[f"used_{name}"] = (quality, known & (measured["used"] > 0))
        return found

    def show(self, patches: torch.Tensor) -> tuple[np.ndarray, ...]:
        """(n, 1, 3, P, P) uint8 -> see `SemiSupervised.pairs`."""
        here = self._here(patches)
        with precision(self._device):
            return self._method.pairs(
                Batch(here, self._targets[:0], here, Step(self._seed, epoch=0, iteration=0))
            )

    def _here(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self._device, non_blocking=True)
