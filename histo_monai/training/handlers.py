"""Training policies as Ignite handlers; handlers with `attach` also work in `train_handlers` of MONAI's trainers."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from ignite.engine import Engine, Events
from ignite.handlers import ProgressBar
from torch import nn

from histo_monai.models.average import StudentAndAverage
from histo_monai.models.sharing.copies import TrainedState
from histo_monai.training.schedule import Rates
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.progress import Now, gone_and_left, is_watched, say
from histo_monai.utils.ranks import this_rank


class TrainingDivergedError(InputError, ArithmeticError):
    """The loss became NaN or infinite."""


class StopWhenNotFinite:
    """Handler that stops a training with a NaN or infinite loss.

    It checks every 20th step and the last step of an epoch, so that a GPU rarely synchronizes.
    """

    def attach(self, trainer: Engine) -> None:
        """Attach to a trainer with "loss" in its output: a dict, or MONAI's list of one dict per sample."""
        trainer.add_event_handler(Events.ITERATION_COMPLETED, self)

    def __call__(self, engine: Engine) -> None:
        """Handler of ITERATION_COMPLETED.

        Raises:
            TrainingDivergedError: names epoch and iteration.
        """
        state = engine.state
        if state.iteration % 20 and state.iteration % state.epoch_length:
            return
        output = state.output[0] if isinstance(state.output, list) else state.output
        loss = float(torch.as_tensor(output["loss"]).detach().mean())
        if not math.isfinite(loss):
            raise TrainingDivergedError(
                f"training: loss is {loss} at epoch {state.epoch}, iteration {state.iteration}; nothing was saved. "
                "Fix: lower the learning rate (lr) of this method in params.yaml."
            )


class BestState:
    """Weights of the lowest rank so far, on the CPU. Ranks are tuples, compared in order.

    Args:
        network: or a part of its state (`TrainedState`).
    """

    def __init__(self, network: nn.Module | TrainedState) -> None:
        self._network = network
        self.epoch = 0
        self._rank: tuple[float, ...] = (float("inf"),)
        self._weights: dict[str, torch.Tensor] = {}

    def offer(self, rank: tuple[float, ...], epoch: int) -> None:
        """Save the present weights if `rank` is below all earlier ranks; a rank with NaN never is."""
        if not any(map(math.isnan, rank)) and rank < self._rank:
            self._rank, self.epoch = rank, epoch
            self._weights = {
                name: value.detach().cpu().clone() for name, value in self._network.state_dict().items()
            }

    def restore(self) -> None:
        """Put the best weights back into the network; no change without any."""
        if self._weights:
            self._network.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """Rank, epoch and weights."""
        return {"rank": list(self._rank), "epoch": self.epoch, "weights": self._weights}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state from `state_dict`."""
        self._rank = tuple(state_dict["rank"])
        self.epoch, self._weights = state_dict["epoch"], state_dict["weights"]


class Curves:
    """One row per epoch: epoch, lr, and means of training and validation.

    Args:
        evaluator: runs before this handler.
        optimizer: source of the learning rate.
    """

    def __init__(self, evaluator: Engine, optimizer: torch.optim.Optimizer) -> None:
        self._evaluator = evaluator
        self._optimizer = optimizer
        self.rows: list[dict[str, float]] = []

    def attach(self, trainer: Engine) -> None:
        """Attach to the trainer, after the handler that validates."""
        trainer.add_event_handler(Events.EPOCH_COMPLETED, self.add)

    def add(self, trainer: Engine) -> None:
        """Append the row of an epoch; handler of EPOCH_COMPLETED."""
        self.rows.append(
            {
                "epoch": trainer.state.epoch,
                "lr": float(self._optimizer.param_groups[0]["lr"]),
                **{f"train_{name}": value for name, value in trainer.state.metrics.items()},
                **{f"validation_{name}": value for name, value in self._evaluator.state.metrics.items()},
            }
        )

    def state_dict(self) -> dict[str, Any]:
        """Rows of the finished epochs."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state from `state_dict`."""
        self.rows = list(state_dict["rows"])


def attach_progress(trainer: Engine, evaluator: Engine) -> None:
    """Attach a progress bar, or occasional log lines, and one line per epoch; first process only."""
    if this_rank() > 0:
        return
    if is_watched():
        ProgressBar(persist=False, desc="train").attach(
            trainer,
            output_transform=lambda output: {"loss": float(output["loss"].mean())},
            event_name=Events.ITERATION_COMPLETED(every=10),
        )
    else:
        now = Now()

        def log_step(engine: Engine) -> None:
            if now():
                state = engine.state
                done = state.iteration - (state.epoch - 1) * (state.epoch_length or 0)
                loss = float(state.output["loss"].mean())
                say(
                    f"epoch {state.epoch}/{state.max_epochs}: step={done}/{state.epoch_length} loss={loss:.3f}"
                )

        trainer.add_event_handler(Events.ITERATION_COMPLETED(every=10), log_step)

    began: dict[str, float] = {}

    def begin() -> None:  # a resumed training counts its own epochs and time only
        if not began:
            began.update(epoch=trainer.state.epoch - 1, at=time.monotonic())

    def report() -> None:
        def measures(engine: Engine) -> str:
            return " ".join(f"{name}={value:.3f}" for name, value in engine.state.metrics.items())

        epoch, epochs = trainer.state.epoch, trainer.state.max_epochs
        before = int(began["epoch"])
        times = gone_and_left(time.monotonic() - began["at"], epoch - before, epochs - before)
        held_out = f"validation {measures(evaluator)}; " if evaluator.state.metrics else ""
        say(f"epoch {epoch}/{epochs}: train {measures(trainer)}; {held_out}{times}")

    trainer.add_event_handler(Events.EPOCH_STARTED, begin)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, report)


class ScheduledRates:
    """Handler that sets scheduled learning rates, a function of the step alone without state.

    Args:
        optimizer: each parameter group starts with its own highest rate.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: Rates) -> None:
        self._optimizer = optimizer
        self._schedule = schedule
        self._highest = [float(group["lr"]) for group in optimizer.param_groups]

    def attach(self, trainer: Engine) -> None:
        """Attach to the trainer."""
        trainer.add_event_handler(Events.ITERATION_STARTED, self)

    def __call__(self, engine: Engine) -> None:
        """Handler of ITERATION_STARTED."""
        state = engine.state
        num_steps = (state.max_epochs or 0) * (state.epoch_length or 0)
        rate = self._schedule.rate(epoch=state.epoch, step=state.iteration, num_steps=num_steps)
        for group, lr in zip(self._optimizer.param_groups, self._highest, strict=True):
            group["lr"] = lr * rate


class AverageFollows:
    """Handler that updates the average of a student's weights after every step.

    The trainer's network is the student; the evaluator's network is the average.
    """

    def __init__(self, pair: StudentAndAverage[Any]) -> None:
        self._pair = pair

    def attach(self, trainer: Engine) -> None:
        """Attach to the trainer of the student."""
        trainer.add_event_handler(Events.ITERATION_COMPLETED, self._pair.follow)


class OrderOfEpoch:
    """Handler that sets the batch order of an epoch, also in resumed trainings.

    Args:
        batches: with `set_epoch`, as `data.loaders.batches.Batches`.
    """

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def attach(self, trainer: Engine) -> None:
        """Attach to the trainer that iterates over the batches."""
        trainer.add_event_handler(Events.EPOCH_STARTED, lambda: self._batches.set_epoch(trainer.state.epoch))
