"""Heads as layers of a network: what `HeadModel.module` gives, and how calibrated mixtures are put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn


def buffer(values: NDArray) -> torch.Tensor:
    """As a float32 tensor."""
    return torch.from_numpy(np.asarray(values, np.float32).copy())


def linear_module(weights: NDArray, biases: NDArray) -> nn.Linear:
    """A linear layer of given weights, Shape (K, D), and biases, Shape (K,)."""
    layer = nn.Linear(weights.shape[1], weights.shape[0])
    with torch.no_grad():
        layer.weight.copy_(buffer(weights))
        layer.bias.copy_(buffer(biases))
    return layer.requires_grad_(False)


class CosineModule(nn.Module):
    """Largest cosine to the prototypes of each class, by a temperature: (n, D) -> (n, K).

    Args:
        prototypes: Shape (P, D), unit length.
        owners: class of each prototype, Shape (P,).
        temperature: cosines are divided by it.
    """

    prototypes: torch.Tensor

    def __init__(self, prototypes: NDArray, owners: NDArray, temperature: float) -> None:
        super().__init__()
        self.register_buffer("prototypes", buffer(prototypes))
        self._of_class = [
            np.flatnonzero(owners == number).tolist() for number in range(int(owners.max()) + 1)
        ]
        self.temperature = temperature

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(n, D) -> (n, K)."""
        cosines = F.normalize(rows, dim=1) @ self.prototypes.T
        return torch.stack([cosines[:, own].amax(dim=1) for own in self._of_class], dim=1) / self.temperature


class NeighborsModule(nn.Module):
    """Votes of the k nearest labeled rows by cosine: (n, D) -> log fractions, (n, K), or the mean score, (n, 1).

    Args:
        rows: labeled rows of unit length, Shape (m, D).
        votes: of each row, Shape (m, K).
        num_neighbors: k.
        smoothing: added to the votes of each class; None for scores.
    """

    rows: torch.Tensor
    votes: torch.Tensor

    def __init__(self, rows: NDArray, votes: NDArray, num_neighbors: int, smoothing: float | None) -> None:
        super().__init__()
        self.register_buffer("rows", buffer(rows))
        self.register_buffer("votes", buffer(votes))
        self.num_neighbors, self.smoothing = num_neighbors, smoothing

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(n, D) -> (n, K)."""
        nearest = (F.normalize(rows, dim=1) @ self.rows.T).topk(self.num_neighbors, dim=1).indices
        votes = self.votes[nearest].sum(dim=1)
        if self.smoothing is None:
            return votes[:, :1] / votes[:, 1:]
        return (votes + self.smoothing).log()


class KernelModule(nn.Module):
    """Weighted sum of Gaussian kernels around labeled rows: (n, D) -> (n, 1).

    Args:
        rows: Shape (m, D).
        coefficients: Shape (m,).
        offset: added to every score.
        gamma: the kernel is exp(-gamma |x - y|²).
    """

    rows: torch.Tensor
    coefficients: torch.Tensor

    def __init__(self, rows: NDArray, coefficients: NDArray, offset: float, gamma: float) -> None:
        super().__init__()
        self.register_buffer("rows", buffer(rows))
        self.register_buffer("coefficients", buffer(coefficients))
        self.offset, self.gamma = offset, gamma

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(n, D) -> (n, 1)."""
        distances = torch.cdist(rows, self.rows, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.exp(-self.gamma * distances**2) @ self.coefficients[:, None] + self.offset


class SelectedModule(nn.Module):
    """A selected mixture of heads on features as the encoder gives them: (n, D) -> log-probabilities or scores.

    Args:
        parts: standardization, head, temperature and weight of each part. Standardization is columns of all features,
            a mean and a factor, see `features.Standardization`.
        known: numbers of the classes with a label; None for scores.
        num_classes: K; None for scores.
        unknown: probability of a class without a label, before all are normalized.
    """

    known: torch.Tensor

    def __init__(
        self,
        parts: Sequence[tuple[tuple[NDArray, NDArray, NDArray], nn.Module, float, float]],
        known: NDArray | None,
        num_classes: int | None,
        unknown: float,
    ) -> None:
        super().__init__()
        for number, ((columns, mean, factor), _, _, _) in enumerate(parts):
            self.register_buffer(f"columns_{number}", torch.from_numpy(np.asarray(columns, np.int64)))
            self.register_buffer(f"mean_{number}", buffer(mean))
            self.register_buffer(f"factor_{number}", buffer(factor))
        self.heads = nn.ModuleList([head for _, head, _, _ in parts])
        self.temperatures = [temperature for _, _, temperature, _ in parts]
        self.weights = [weight for _, _, _, weight in parts]
        self.num_classes, self.unknown = num_classes, unknown
        if known is not None:
            self.register_buffer("known", torch.from_numpy(np.asarray(known, np.int64)))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """All depths side by side in the order of their names: (n, D) -> (n, K) or (n, 1)."""
        total = torch.zeros(len(features), 1, device=features.device)
        for number, (head, temperature, weight) in enumerate(
            zip(self.heads, self.temperatures, self.weights, strict=True)
        ):
            columns, mean, factor = (
                self.get_buffer(f"{name}_{number}") for name in ("columns", "mean", "factor")
            )
            outputs = head((features[:, columns] - mean) * factor)
            if self.num_classes is not None:
                outputs = torch.softmax(outputs / temperature, dim=1)
            total = total + weight * outputs
        if self.num_classes is None:
            return total.clamp(0.0, 1.0)
        every = total.new_full((len(features), self.num_classes), self.unknown)
        return every.index_copy(1, self.known, total.clamp(min=1e-12)).log()
