"""What params can set of momentum contrast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.pretext.settings import NesterovSettings
from histo_monai.settings.reader import ParamsError
from histo_monai.settings.rules import Count, Positive, Range


@dataclass(frozen=True)
class MoCoSettings(NesterovSettings):
    """As `NesterovSettings`, and the queue of keys.

    Attributes:
        queue_size: keys that a query is held against.
        key_momentum: share of the key network that stays at each step.
        temperature: divides the cosine similarities.
    """

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
