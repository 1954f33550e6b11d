"""What params can set of RSP and MoCo in one network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.pretext.settings import ContrastSettings, OrderSettings
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class RSPMoCoSettings(ContrastSettings, OrderSettings):
    """As `OrderSettings`, and `ContrastSettings`.

    Attributes:
        contrast: weight of InfoNCE beside the loss of the orders.
    """

    contrast: Annotated[float, Range(0.0)]

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """See `PretextSettings`; one epoch fills the queue."""
        self.check_queue("rsp_moco", corpus, num_train)
