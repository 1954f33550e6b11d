"""What params can set of resolution sequence prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.pretext.settings import PretextSettings
from histo_monai.settings.rules import Count, Positive, Range


@dataclass(frozen=True)
class LookaheadSettings:
    """Lookahead (Zhang et al. 2019).

    Attributes:
        steps: k, in iterations: after so many the slow weights move.
        slow_step: alpha, the share of the way that they move.
    """

    steps: Count
    slow_step: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]


@dataclass(frozen=True)
class RSPSettings(PretextSettings):
    """SGD with Nesterov momentum inside Lookahead.

    Attributes:
        epochs: passes over the training triples.
        batch_size: triples per step, over all processes.
        lr: constant learning rate of SGD.
        momentum: Nesterov momentum.
        weight_decay: L2.
        lookahead: around SGD.
    """

    epochs: Count
    batch_size: Annotated[int, Range(2)]
    lr: Positive
    momentum: Annotated[float, Range(0.0, 0.999, exclusive_low=True)]
    weight_decay: Annotated[float, Range(0.0)]
    lookahead: LookaheadSettings
