"""An encoder in one file: two convolutions and a mean."""

from __future__ import annotations

from torch import nn

from histo_monai.models.encoders.architectures import Architecture
from histo_monai.models.encoders.published import HALF

NUM_FEATURES = 12


def _build(img_px: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=4),
        nn.ReLU(),
        nn.Conv2d(8, NUM_FEATURES, 3, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


TOY_ENCODER = Architecture(_build, HALF, HALF)
