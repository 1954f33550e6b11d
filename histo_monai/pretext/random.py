"""The supervised baseline: the encoder of RSP at its random initialisation, written like any other method."""

from __future__ import annotations

from histo_monai.networks import EncoderStart
from histo_monai.pretext.rsp import RSP

BATCH_SIZE = 64
"""Triples of a batch of the one validation pass, which shows that an untrained network stands at chance."""


class Random(RSP):
    """RSP that does not train: same network, same initialisation, no epoch.

    Args:
        start: encoder; its weights, if any, are left alone.
        patch_px: side of the patches.
        mpps: the three resolutions, µm/px, finest first.
        augmentation_prob: not used, since nothing trains.
    """

    def __init__(
        self,
        *,
        start: EncoderStart,
        patch_px: int,
        mpps: tuple[float, ...],
        augmentation_prob: float,
    ) -> None:
        super().__init__(
            start=start.without_weights(),
            patch_px=patch_px,
            mpps=mpps,
            augmentation_prob=augmentation_prob,
            epochs=0,
            batch_size=BATCH_SIZE,
            lr=1.0,
            momentum=0.9,
            weight_decay=0.0,
            lookahead_steps=1,
            lookahead_slow_step=1.0,
        )
