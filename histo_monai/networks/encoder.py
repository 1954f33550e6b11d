"""The trunk that every method shares: a ResNet-18 up to and including global average pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torchvision
from torch import nn

NUM_FEATURES = 512
"""Features of a patch: the width of ResNet-18 after global average pooling."""


class Encoder(nn.Module):
    """RGB patches -> features. Normalisation is part of the network, so no caller can forget it.

    Input  (N, 3, H, W), float32, 0..1, any H and W of at least 32 px
    Output (N, 512), float32

    Weights start random (He et al. 2016, torchvision's initialisation); `torch.manual_seed` decides them.

    Args:
        mean: subtracted from each of R, G, B.
        std: divides each of R, G, B afterwards.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(
        self,
        mean: tuple[float, float, float] = (0.5, 0.5, 0.5),
        std: tuple[float, float, float] = (0.5, 0.5, 0.5),
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))
        self.trunk = torchvision.models.resnet18(weights=None)
        self.trunk.fc = nn.Identity()

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Features of a batch of patches."""
        return self.trunk((patches - self.mean) / self.std)

    def description(
        self, *, architecture: str, head: str, patch_px: int, mpps: Sequence[float]
    ) -> dict[str, Any]:
        """What a pretrained encoder is, for the JSON beside it.

        Args:
            architecture: all that is kept of the pretraining, in words.
            head: that fine-tuning puts on it, a name in `HEADS`.
            patch_px: side of the patches that it was pretrained on.
            mpps: their resolutions, µm/px.
        """
        return {
            "architecture": architecture,
            "head": head,
            "patch_px": patch_px,
            "mpps": list(mpps),
            "num_features": NUM_FEATURES,
            "normalisation": {"mean": self.mean.flatten().tolist(), "std": self.std.flatten().tolist()},
        }
