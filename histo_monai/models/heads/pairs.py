"""Layers above the backbone in resolution sequence prediction (paper, section 3.1 and figure 2)."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from histo_monai.models.layers import at_full_precision

PAIR_FEATURES = 256


class PairMLP(nn.Module):
    """Vector of 256 from two feature vectors: 2 D -> 512 -> ReLU -> 256, with common weights for all pairs.

    Args:
        num_features: D of the encoder; 512 in the paper.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2 * num_features, 512), nn.ReLU(inplace=True), nn.Linear(512, PAIR_FEATURES)
        )

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """(N, D) and (N, D) -> (N, 256)."""
        return self.layers(torch.cat([first, second], dim=-1))


class OrderHead(nn.Module):
    """Logits over the 3! = 6 orders from features of three patches: 768 -> 128 -> ReLU -> 6.

    Pairs are (1, 2), (1, 3), (2, 3) in the order of the patches. The pair MLP is an argument of each call, since
    fine-tuning keeps it and drops this head.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3 * PAIR_FEATURES, 128), nn.ReLU(inplace=True), nn.Linear(128, 6)
        )

    def forward(self, features: torch.Tensor, pair_mlp: PairMLP) -> torch.Tensor:
        """(N, 3, D) -> (N, 6), float32 under autocast too."""
        pairs = [
            at_full_precision(pair_mlp, features[:, i], features[:, j])
            for i, j in itertools.combinations(range(3), 2)
        ]
        return at_full_precision(self.layers, torch.cat(pairs, dim=-1))
