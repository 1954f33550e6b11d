"""Heads of trained task models: features -> logits of classes, or a score."""

from __future__ import annotations

import torch
from torch import nn

from histo_monai.models.heads.pairs import PAIR_FEATURES, PairMLP
from histo_monai.models.layers import at_full_precision


class PairHead(nn.Module):
    """Head over features of RSP: pair MLP and a linear layer over three pairs, 768 -> K.

    In fine-tuning all three branches have one image, so the three pairs (h, h) have equal 256 numbers: computed once
    and repeated. Outputs and gradients equal the network with three branches.

    Args:
        num_features: D of the encoder.
        num_outputs: K.
    """

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.pair_mlp = PairMLP(num_features)
        self.linear = nn.Linear(3 * PAIR_FEATURES, num_outputs)

    def before_linear(self, features: torch.Tensor) -> torch.Tensor:
        """(N, D) -> (N, 768), input of the linear layer."""
        return at_full_precision(self.pair_mlp, features, features).repeat(1, 3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(N, D) -> (N, K)."""
        return at_full_precision(self.linear, self.before_linear(features))


class LinearHead(nn.Module):
    """One linear layer over the features, D -> K.

    Args:
        num_features: D of the encoder.
        num_outputs: K.
    """

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_outputs)

    def before_linear(self, features: torch.Tensor) -> torch.Tensor:
        """Input of the linear layer: the features."""
        return features

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(N, D) -> (N, K)."""
        return at_full_precision(self.linear, features)


LINEAR = "linear"
TRAINED_HEADS: dict[str, type[PairHead] | type[LinearHead]] = {"pair": PairHead, LINEAR: LinearHead}
"""Name in the description of an encoder -> head. Pretrained parts of a head have the encoder's names."""
