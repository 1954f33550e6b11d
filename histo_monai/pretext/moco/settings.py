"""What params can set of momentum contrast."""

from __future__ import annotations

from dataclasses import dataclass

from histo_monai.pretext.settings import ContrastSettings, NesterovSettings


@dataclass(frozen=True)
class MoCoSettings(ContrastSettings, NesterovSettings):
    """As `NesterovSettings`, and `ContrastSettings`."""

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """See `PretextSettings`; one epoch fills the queue."""
        self.check_queue("moco", corpus, num_train)
