"""Gated attention pooling: slide = mean of its patches, weighted by attention."""

from __future__ import annotations

import torch
from torch import nn


class AttentionPooling(nn.Module):
    """Class logits of a slide from its patch features (Ilse, Tomczak and Welling 2018, equation 9).

    With standardized features h_k of patch k, matrices V and U and a vector w, the attention of a patch is
    a_k = softmax over k of w' (tanh(V h_k) * sigmoid(U h_k)), and the slide is z = sum over k of a_k h_k; a linear
    layer on z gives the logits. It has no further weights, as slides are few.

    Input  (n, D), float32
    Output logits (K,), and attention (n,), sum 1

    Args:
        num_features: D.
        num_classes: K.
        hidden: rows of V and of U.
        dropout: of the gated hidden layer in training.
    """

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, num_features: int, num_classes: int, *, hidden: int, dropout: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("scale", torch.ones(num_features))
        self.content = nn.Linear(num_features, hidden)
        self.gate = nn.Linear(num_features, hidden)
        self.weight = nn.Linear(hidden, 1)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(num_features, num_classes)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and attention of one slide."""
        patches = (features - self.mean) / self.scale
        hidden = torch.tanh(self.content(patches)) * torch.sigmoid(self.gate(patches))
        weights = self.weight(self.dropout(hidden)).squeeze(1).softmax(dim=0)
        return self.head(weights @ patches), weights
