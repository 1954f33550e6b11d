"""Policies of training as Ignite handlers."""

from __future__ import annotations

import math
from typing import Any

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.handlers import ProgressBar
from torch import nn

from histo_monai.errors import InputError
from histo_monai.process.progress import Now, is_watched, say
from histo_monai.schedule import Schedule


class TrainingDivergedError(InputError, ArithmeticError):
    """The loss became NaN or infinite."""


def stop_when_not_finite(engine: Engine) -> None:
    """Handler of ITERATION_COMPLETED: refuse to train on once the loss is NaN or infinite.

    Looks at every 20th step and at the last one of an epoch, so that a GPU rarely waits for it.

    Raises:
        TrainingDivergedError: names epoch and iteration.
    """
    state = engine.state
    if state.iteration % 20 and state.iteration % state.epoch_length:
        return
    loss = float(state.output["loss"].mean())
    if not math.isfinite(loss):
        raise TrainingDivergedError(
            f"the training loss is {loss} at epoch {state.epoch}, iteration {state.iteration}: nothing was saved; "
            "lower the learning rate (lr) of this method in params.yaml"
        )


class BestState:
    """The weights of the lowest rank so far, on the CPU. A rank is a tuple; its first number decides, then the next."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self.epoch = 0
        self._rank: tuple[float, ...] = (float("inf"),)
        self._weights: dict[str, torch.Tensor] = {}

    def offer(self, rank: tuple[float, ...], epoch: int) -> None:
        """Keep the present weights if `rank` is below all before; one with a NaN never is."""
        if not any(map(math.isnan, rank)) and rank < self._rank:
            self._rank, self.epoch = rank, epoch
            self._weights = {
                name: value.detach().cpu().clone() for name, value in self._network.state_dict().items()
            }

    def restore(self) -> None:
        """Put the best weights back into the network; without any, leave it as it is."""
        if self._weights:
            self._network.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """Rank, epoch and weights."""
        return {"rank": list(self._rank), "epoch": self.epoch, "weights": self._weights}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self._rank = tuple(state_dict["rank"])
        self.epoch, self._weights = state_dict["epoch"], state_dict["weights"]


class Curves:
    """One row per epoch: epoch, lr, and the means of training and validation."""

    def __init__(self, trainer: Engine, evaluator: Engine, optimizer: torch.optim.Optimizer) -> None:
        self._trainer = trainer
        self._evaluator = evaluator
        self._optimizer = optimizer
        self.rows: list[dict[str, float]] = []

    def add(self) -> None:
        """Handler of EPOCH_COMPLETED, after validation."""
        self.rows.append(
            {
                "epoch": self._trainer.state.epoch,
                "lr": float(self._optimizer.param_groups[0]["lr"]),
                **{f"train_{name}": value for name, value in self._trainer.state.metrics.items()},
                **{f"validation_{name}": value for name, value in self._evaluator.state.metrics.items()},
            }
        )

    def state_dict(self) -> dict[str, Any]:
        """The rows."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.rows = list(state_dict["rows"])


def attach_progress(trainer: Engine, evaluator: Engine) -> None:
    """A bar over the iterations of an epoch, in a log a line now and then; one line per epoch; of the first process."""
    if idist.get_rank() > 0:
        return
    if is_watched():
        ProgressBar(persist=False, desc="train").attach(
            trainer,
            output_transform=lambda output: {"loss": float(output["loss"].mean())},
            event_name=Events.ITERATION_COMPLETED(every=10),
        )
    else:
        now = Now()

        def tell(engine: Engine) -> None:
            if now():
                state = engine.state
                done = state.iteration - (state.epoch - 1) * (state.epoch_length or 0)
                loss = float(state.output["loss"].mean())
                say(
                    f"epoch {state.epoch}/{state.max_epochs}: step {done}/{state.epoch_length}, loss {loss:.3f}"
                )

        trainer.add_event_handler(Events.ITERATION_COMPLETED(every=10), tell)

    def report() -> None:
        def measures(engine: Engine) -> str:
            return ", ".join(f"{name} {value:.3f}" for name, value in engine.state.metrics.items())

        epoch, epochs = trainer.state.epoch, trainer.state.max_epochs
        say(f"epoch {epoch}/{epochs}: train {measures(trainer)}; validation {measures(evaluator)}")

    trainer.add_event_handler(Events.EPOCH_COMPLETED, report)


def attach_rates(trainer: Engine, optimizer: torch.optim.Optimizer, schedule: Schedule) -> None:
    """Learning rates as the schedule has them; a function of the step alone, so that they need no state to resume.

    Args:
        trainer: before whose steps they are set.
        optimizer: each group of its parameters has a highest rate of its own.
        schedule: see `Schedule.rate`.
    """
    highest = [float(group["lr"]) for group in optimizer.param_groups]

    def choose(engine: Engine) -> None:
        state = engine.state
        num_steps = (state.max_epochs or 0) * (state.epoch_length or 0)
        rate = schedule.rate(epoch=state.epoch, step=state.iteration, num_steps=num_steps)
        for group, lr in zip(optimizer.param_groups, highest, strict=True):
            group["lr"] = lr * rate

    trainer.add_event_handler(Events.ITERATION_STARTED, choose)
