"""What params can set of resolution sequence prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.pretext.settings import NesterovSettings
from histo_monai.settings.rules import Count, Range


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
class RSPSettings(NesterovSettings):
    """As `NesterovSettings`, inside Lookahead; a sample is a triple.

    Attributes:
        lookahead: see `LookaheadSettings`.
    """

    lookahead: LookaheadSettings
