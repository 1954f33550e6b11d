"""The supervised baseline: the encoder of RSP at its random initialisation, written like any other method."""

from __future__ import annotations

import torch
from torch import nn

from histo_monai.pretext.orders import OrderPrediction
from histo_monai.pretext.protocol import Task
from histo_monai.randomness import Step

BATCH_SIZE = 64
"""Triples of a batch of the one validation pass, which shows that an untrained network stands at chance."""


class Random(OrderPrediction):
    """RSP that does not train: same network, same initialisation, no epoch.

    Args:
        patch_px: side of the patches.
        mpps: the three resolutions, µm/px, finest first.
        augmentation_prob: not used, since nothing trains.
    """

    epochs = 0
    batch_size = BATCH_SIZE

    def __init__(self, *, patch_px: int, mpps: tuple[float, ...], augmentation_prob: float) -> None:
        super().__init__(patch_px=patch_px, mpps=mpps)

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        """What validation asks; no engine calls for it, as there is no epoch."""
        return self.validation_task(patches, rows)

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """SGD that would leave the weights where they are."""
        return torch.optim.SGD(network.parameters(), lr=0.0)
