"""Student and exponential moving average of its weights."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

import torch
from torch import nn

from histo_monai.models.sharing.copies import copy_sharing, frozen_parameters

Model = TypeVar("Model", bound=nn.Module)


def ema_weight(decay: float, num_steps: int) -> float:
    """Weight of the old average at a step: min(decay, 1 - 1 / (num_steps + 1)).

    0 at the first step, `decay` in the end, so short runs do not end near their start (as in Tarvainen & Valpola 2017).
    """
    return min(decay, 1 - 1 / (num_steps + 1))


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, weight: float) -> None:
    """slow <- weight slow + (1 - weight) fast, for weights and batch-norm statistics; integers are copied.

    Weights in the same memory stay.
    """
    weights = zip(slow.parameters(), fast.parameters(), strict=True)
    apart = [pair for pair in weights if pair[0].is_meta or pair[0].data_ptr() != pair[1].data_ptr()]
    own: list[torch.Tensor] = [pair[0] for pair in apart]
    leading: list[torch.Tensor] = [pair[1] for pair in apart]
    pairs = list(zip(slow.buffers(), fast.buffers(), strict=True))
    for buffer, ahead in pairs:
        if buffer.is_floating_point():
            own.append(buffer)
            leading.append(ahead)
    if own:
        torch._foreach_lerp_(own, leading, 1.0 - weight)
    counts = [pair for pair in pairs if not pair[0].is_floating_point()]  # batch counters of batch-norms
    if counts:
        torch._foreach_copy_([buffer for buffer, _ in counts], [ahead for _, ahead in counts])


class StudentAndAverage(nn.Module, Generic[Model]):
    """Student and average of one start model. The average follows weights and batch-norm statistics at every step.

    Args:
        model: becomes the average, always in evaluation mode; the student is a copy. Both share the memory of
            parameters without gradient, which do not train.
        decay: 0..1, highest weight of the old average (`ema_weight`).
    """

    num_steps: torch.Tensor
    """Number of updates of the average."""

    def __init__(self, model: Model, decay: float) -> None:
        super().__init__()
        self.student = copy_sharing(model, frozen_parameters(model))
        self.average = model.requires_grad_(False)
        self.decay = decay
        self.register_buffer("num_steps", torch.zeros((), dtype=torch.int64))
        self._steps_done: int | None = 0
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the student alone."""
        super().train(mode)
        self.average.eval()
        return self

    @property
    def steps_done(self) -> int:
        """`num_steps` as int; synchronizes a GPU once after loading, not at every step."""
        if self._steps_done is None:
            self._steps_done = int(self.num_steps)
        return self._steps_done

    def follow(self) -> None:
        """Move the average one step towards the student."""
        self._steps_done = self.steps_done + 1
        self.num_steps += 1
        follow(self.average, self.student, ema_weight(self.decay, self._steps_done))

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self._steps_done = None
