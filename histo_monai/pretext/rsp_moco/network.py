"""One trunk that orders the patches of a triple, and tells its finest patch from those of others."""

from __future__ import annotations

import copy
from typing import NamedTuple, Self

import torch
from torch import nn

from histo_monai.networks.average import follow
from histo_monai.pretext.momentum import KEY_FEATURES, KeyQueue, point_on_sphere
from histo_monai.pretext.orders import RSPNetwork


class Outputs(NamedTuple):
    """Logits over the orders, (n, K, 6); queries and keys, (n, 128) each, of length 1."""

    orders: torch.Tensor
    queries: torch.Tensor
    keys: torch.Tensor


class OrderAndContrast(nn.Module):
    """The features of the finest patch, which the orders need anyway, are the query of momentum contrast.

    The key network is as in `MomentumContrast`.

    Args:
        ordering: the network of RSP; becomes part of it.
        queue_size: K.
        key_momentum: m of key <- m key + (1 - m) query, after each step.
    """

    def __init__(self, ordering: RSPNetwork, queue_size: int, key_momentum: float) -> None:
        super().__init__()
        self.key_momentum = key_momentum
        self.ordering = ordering
        self.projection = nn.Linear(ordering.encoder.num_features, KEY_FEATURES)
        self.key_encoder = copy.deepcopy(ordering.encoder).requires_grad_(False)
        self.key_projection = copy.deepcopy(self.projection).requires_grad_(False)
        self.queue = KeyQueue(queue_size)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Training mode does not reach the key network."""
        super().train(mode)
        self.key_encoder.eval()
        return self

    def forward(self, patches: torch.Tensor, orders: torch.Tensor, others: torch.Tensor) -> Outputs:
        """See `RSPNetwork`.

        Args:
            patches: Shape (n, 3, 3, P, P), float32, 0..1; axis 1 is resolution, finest first.
            orders: Shape (n, K), int64.
            others: another view of each finest patch, Shape (n, 3, P, P).
        """
        with torch.no_grad():
            keys = point_on_sphere(self.key_projection, self.key_encoder(others))
        features = self.ordering.features(patches)
        queries = point_on_sphere(self.projection, features[:, 0])
        return Outputs(self.ordering.logits(features, orders), queries, keys)

    def follow(self) -> None:
        """One step of the key network towards trunk and projection."""
        follow(self.key_encoder, self.ordering.encoder, self.key_momentum)
        follow(self.key_projection, self.projection, self.key_momentum)
