"""What params can set of resolution sequence prediction."""

from __future__ import annotations

from dataclasses import dataclass

from histo_monai.pretext.settings import OrderSettings


@dataclass(frozen=True)
class RSPSettings(OrderSettings):
    """As `OrderSettings`."""
