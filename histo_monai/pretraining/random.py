"""Baseline without pretraining: the encoder at its random initialization."""

from __future__ import annotations

from typing import ClassVar

from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.orders import Untrained
from histo_monai.pretraining.settings import PretextSettings, RandomSettings


class Random(Untrained):
    """RSP's encoder at its random initialization; weights named in `start` are not loaded."""

    Settings: ClassVar[type[PretextSettings]] = RandomSettings

    def __init__(
        self,
        *,
        start: EncoderStart,
        patch_px: int,
        mpps: tuple[float, ...],
        augmentation_prob: float,
        settings: PretextSettings,
    ) -> None:
        super().__init__(start=start.without_weights(), patch_px=patch_px, mpps=mpps)
