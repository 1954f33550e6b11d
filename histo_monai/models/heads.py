"""The layers above the trunk in resolution sequence prediction (paper, section 3.1 and figure 2)."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from histo_monai.models.layers import at_full_precision

PAIR_FEATURES = 256


class PairMLP(nn.Module):
    """Two features side by side -> one vector of 256: 2 D -> 512 -> ReLU -> 256, shared by all pairs.

    Args:
        num_features: D of the encoder; the paper's has 512.
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
    """Features of three patches in some order -> logits over the 3! = 6 orders: 768 -> 128 -> ReLU -> 6.

    The pairs are (1, 2), (1, 3), (2, 3) of the order in which the patches come. The pair MLP is handed over at each
    call, since it belongs to the encoder: fine-tuning keeps it and drops this head.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3 * PAIR_FEATURES, 128), nn.ReLU(inplace=True), nn.Linear(128, 6)
        )

    def forward(self, features: torch.Tensor, pair_mlp: PairMLP) -> torch.Tensor:
        """(N, 3, D) -> (N, 6), float32 whatever autocast does."""
        pairs = [
            at_full_precision(pair_mlp, features[:, i], features[:, j])
            for i, j in itertools.combinations(range(3), 2)
        ]
        return at_full_precision(self.layers, torch.cat(pairs, dim=-1))
