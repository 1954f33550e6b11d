"""The supervised baseline: the encoder at its random initialization, written like any other method's."""

from __future__ import annotations

from typing import ClassVar

from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.orders import Untrained
from histo_monai.pretraining.settings import PretextSettings, RandomSettings


class Random(Untrained):
    """The encoder of RSP at its random initialization.

    Args:
        start: encoder; its weights, if any, are left alone.
        patch_px: side of the patches.
        mpps: the three resolutions, µm/px, finest first.
        augmentation_prob: not used, since nothing trains.
        settings: none.
    """

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
