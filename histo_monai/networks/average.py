"""A student and the exponential moving average of its weights, which teaches or predicts."""

from __future__ import annotations

import copy
from typing import Generic, Self, TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def kept_share(decay: float, num_steps: int) -> float:
    """What a moving average keeps of itself, so that a short run does not end near its start.

    min(decay, 1 - 1 / (num_steps + 1)): nothing at 0, `decay` in the end (Tarvainen & Valpola 2017 raise it likewise).
    """
    return min(decay, 1 - 1 / (num_steps + 1))


class StudentAndAverage(nn.Module, Generic[Model]):
    """Both start from one model. The average follows every step: weights and the statistics of batch-norms alike.

    What it keeps of itself at a step: see `kept_share`.

    Args:
        model: becomes the average, and is always in evaluation mode; the student is a copy of it.
        decay: 0..1.
    """

    num_steps: torch.Tensor

    def __init__(self, model: Model, decay: float) -> None:
        super().__init__()
        self.student = copy.deepcopy(model).requires_grad_(True)
        self.average = model.requires_grad_(False)
        self.decay = decay
        self.register_buffer("num_steps", torch.zeros((), dtype=torch.int64))
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Training mode reaches the student alone."""
        super().train(mode)
        self.average.eval()
        return self

    @torch.no_grad()
    def follow(self) -> None:
        """One step of the average towards the student; whole numbers are copied."""
        self.num_steps += 1
        kept = kept_share(self.decay, int(self.num_steps))
        theirs = self.student.state_dict()
        for name, ours in self.average.state_dict().items():
            if ours.is_floating_point():
                ours.lerp_(theirs[name], 1 - kept)
            else:
                ours.copy_(theirs[name])
