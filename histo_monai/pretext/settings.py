"""What every method's settings can do, all that a method without settings has, and what several methods share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.settings.rules import Count, Positive, Range


@dataclass(frozen=True)
class PretextSettings:
    """What params can set of a method, in the section `pretrain.<method>`; of itself nothing."""

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """Refuse what does not go with the rest of the params; called when they are read, if the method is in use.

        Args:
            corpus: name of the corpus.
            num_train: its training samples.
            weights: file that the encoder starts from, None without.

        Raises:
            ParamsError: one line that begins with the key.
        """


@dataclass(frozen=True)
class NesterovSettings(PretextSettings):
    """SGD with Nesterov momentum.

    Attributes:
        epochs: passes over the training samples.
        batch_size: samples per step, over all processes.
        lr: constant learning rate of SGD.
        momentum: Nesterov momentum.
        weight_decay: L2.
    """

    epochs: Count
    batch_size: Annotated[int, Range(2)]
    lr: Positive
    momentum: Annotated[float, Range(0.0, 0.999, exclusive_low=True)]
    weight_decay: Annotated[float, Range(0.0)]
