"""The frame of every training: epochs, validation, curves, the weights to keep, going on after a kill."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import numpy as np
import torch
from ignite.engine import Engine, Events

from histo_monai.training.events import attach_tensorboard, writing_events
from histo_monai.training.handlers import BestState, Curves, OrderOfEpoch, StopWhenNotFinite, attach_progress
from histo_monai.training.ranks import note_step
from histo_monai.training.resume import ResumePoint, Stateful


@dataclass(frozen=True)
class Records:
    """Where a training leaves its traces.

    Attributes:
        tensorboard: folder of event files (see `training.events`), None for none.
        resume: file that keeps the state after every epoch, so that a killed run goes on where it was; None for none.
        fingerprint: of everything that decides the result; a state under another fingerprint is not resumed.
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
    """Run the trainer; after every epoch validate, note the curves and offer the weights to `best`.

    Args:
        trainer: one step per batch; outputs are dicts of Shape (n,) tensors with "loss".
        evaluator: gives the means of its measures.
        training: batches; `batch_sampler.set_epoch` chooses their order. None if nothing trains.
        validation: batches in a fixed order; None if there is nothing to validate on.
        optimizer: whose learning rate is noted.
        parts: by name, all that a resumed training needs beside `best` and the curves.
        best: keeps the weights of the lowest rank; None keeps the last.
        rank: means of the evaluator -> what is lowest for the weights to keep.
        pictures: by name, for TensorBoard: (H, W, 3) uint8 of the last validation.
        images_per_step: of this process, for the throughput.
        prefix: before the names of measures in TensorBoard.

    Returns:
        One row per epoch: epoch, lr, train_<measure>, validation_<measure>.

    Raises:
        ArithmeticError: the loss is not finite; names epoch, iteration and what to change.
    """
    curves = Curves(evaluator, optimizer)
    kept: dict[str, Stateful] = {**parts, "curves": curves, **({"best": best} if best else {})}
    point = ResumePoint(records.resume, records.fingerprint, kept)
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
    if records.tensorboard is not None and idist.get_rank() == 0:
        if done == 0:
            shutil.rmtree(records.tensorboard, ignore_errors=True)  # the curves of another training
        if is_to_train:  # before the state is saved: an epoch that is not done again has its events
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
