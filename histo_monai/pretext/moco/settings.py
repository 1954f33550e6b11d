"""What params can set of momentum contrast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.pretext.settings import PretextSettings
from histo_monai.settings.reader import ParamsError
from histo_monai.settings.rules import Count, Positive, Range


@dataclass(frozen=True)
class MoCoSettings(PretextSettings):
    """SGD with Nesterov momentum, and the queue of keys.

    Attributes:
        epochs: passes over the training patches.
        batch_size: patches per step, over all processes.
        lr: constant learning rate of SGD.
        momentum: Nesterov momentum.
        weight_decay: L2.
        queue_size: keys that a query is held against.
        key_momentum: share of the key network that stays at each step.
        temperature: divides the cosine similarities.
    """

    epochs: Count
    batch_size: Annotated[int, Range(2)]
    lr: Positive
    momentum: Annotated[float, Range(0.0, 0.999, exclusive_low=True)]
    weight_decay: Annotated[float, Range(0.0)]
    queue_size: Count
    key_momentum: Annotated[float, Range(0.0, 1.0)]
    temperature: Positive

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """See `PretextSettings`; one epoch fills the queue."""
        if self.queue_size > num_train:
            raise ParamsError(
                f"pretrain.moco.queue_size: expected at most corpora.{corpus}.num_train, {num_train}, so that one "
                f"epoch fills the queue, got {self.queue_size}"
            )
