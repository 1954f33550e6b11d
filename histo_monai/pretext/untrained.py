"""What the baselines without a pretraining share: an encoder as it stands, written like any other method's."""

from __future__ import annotations

import torch
from torch import nn

from histo_monai.pretext.orders import OrderPrediction
from histo_monai.pretext.protocol import Task
from histo_monai.randomness import Step


class Untrained(OrderPrediction):
    """RSP that does not train: same network, no epoch. Its one validation pass shows an untrained head at chance.

    Args:
        start: encoder, and the file that it starts from, if any.
        patch_px: side of the patches.
        mpps: the three resolutions, µm/px, finest first.
    """

    epochs = 0
    batch_size = 64

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        """What validation asks; no engine calls for it, as there is no epoch."""
        return self.validation_task(patches, rows)

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """SGD that would leave the weights where they are."""
        return torch.optim.SGD(network.parameters(), lr=0.0)
