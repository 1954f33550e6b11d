"""Loop of every training: epochs, validation, curves, weights to save, resume."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events

from histo_monai.training.events import attach_tensorboard, writing_events
from histo_monai.training.handlers import BestState, Curves, OrderOfEpoch, StopWhenNotFinite, attach_progress
from histo_monai.training.ranks import note_step
from histo_monai.training.resume import ResumePoint, Stateful
from histo_monai.utils.ranks import this_rank


@dataclass(frozen=True)
class Records:
    """Files of a training's records.

    Attributes:
        tensorboard: folder of event files (`training.events`), or None.
        resume: file with the state after every epoch, to resume a killed run; or None.
        fingerprint: digest of everything that decides the result; a state of another fingerprint is not resumed.
    """

    tensorboard: Path | None = None
    resume: Path | None = None
    fingerprint: str = ""


def fit(
    trainer: Engine,
    evaluator: Engine,
    training: Any,
    validation: Any,
    *,
    epochs: int,
    optimizer: torch.optim.Optimizer,
    parts: Mapping[str, Stateful],
    best: BestState | None,
    rank: Callable[[Mapping[str, float]], tuple[float, ...]],
    pictures: Mapping[str, Callable[[], np.ndarray]],
    images_per_step: int,
    records: Records,
    prefix: str = "",
) -> list[dict[str, float]]:
    """Run the trainer, with validation, curves and an offer of weights to `best` after every epoch.

    Args:
        trainer: one step per batch; outputs are dicts of Shape (n,) tensors with "loss".
        evaluator: computes the means of its measures.
        training: batches; `batch_sampler.set_epoch` sets their order. None without training.
        validation: batches in a fixed order, or None.
        optimizer: source of the learning rate.
        parts: by name, the state of a resumed training beside `best` and the curves.
        best: holds the weights of the lowest rank; None: the last weights stay.
        rank: means of the evaluator -> rank of the weights; lowest is best.
        pictures: by name, for TensorBoard: (H, W, 3) uint8 of the last validation.
        images_per_step: of this process, for the throughput.
        prefix: before the names of measures in TensorBoard.

    Returns:
        One row per epoch: epoch, lr, train_<measure>, validation_<measure>.

    Raises:
        ArithmeticError: the loss is not finite; names epoch, iteration and remedy.
    """
    curves = Curves(evaluator, optimizer)
    state: dict[str, Stateful] = {**parts, "curves": curves, **({"best": best} if best else {})}
    point = ResumePoint(records.resume, records.fingerprint, state)
    for engine in (trainer, evaluator):
        engine.add_event_handler(Events.ITERATION_COMPLETED, note_step)
    StopWhenNotFinite().attach(trainer)
    if validation is not None:
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(validation))
    curves.attach(trainer)
    if best is not None and validation is not None:
        trainer.add_event_handler(
            Events.EPOCH_COMPLETED, lambda: best.offer(rank(evaluator.state.metrics), trainer.state.epoch)
        )
    done = point.restore()
    first_step = 1 + done * (len(training) if training is not None else 0)
    is_to_train = training is not None and done < epochs
    if records.tensorboard is not None and this_rank() == 0:
        if done == 0:
            shutil.rmtree(records.tensorboard, ignore_errors=True)  # events of another training
        if is_to_train:  # before the handler that saves the state, so every saved epoch has its events
            attach_tensorboard(
                records.tensorboard,
                trainer,
                evaluator,
                optimizer,
                pictures,
                prefix=prefix,
                images_per_step=images_per_step,
                first_step=first_step,
            )
    trainer.add_event_handler(Events.EPOCH_COMPLETED, point.save)
    attach_progress(trainer, evaluator)
    if is_to_train:
        OrderOfEpoch(training.batch_sampler).attach(trainer)
        about = {"epoch_length": len(training), "max_epochs": epochs, "iteration": first_step - 1}
        trainer.load_state_dict(about)
        with writing_events(records.tensorboard) if records.tensorboard else nullcontext():
            trainer.run(training)
    if best is not None:
        best.restore()
    return curves.rows
