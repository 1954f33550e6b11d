"""Heads compute in the precision of their weights: bfloat16 has 8 significant bits, too few for logits and scores."""

from __future__ import annotations

import torch
from torch import nn


def at_full_precision(layers: nn.Module, *features: torch.Tensor) -> torch.Tensor:
    """What `layers` give in the type of their own weights, whatever autocast does around them.

    Args:
        layers: with parameters of one floating type, float32 as a rule.
        features: of any floating type; a trunk under autocast gives bfloat16.
    """
    dtype = next(layers.parameters()).dtype
    with torch.autocast(features[0].device.type, enabled=False):
        outputs: torch.Tensor = layers(*(x.to(dtype) for x in features))
    return outputs
