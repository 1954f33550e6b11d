"""Functions common to several heads: linear outputs, row space, balanced weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from histo_monai.models.heads import mixture
from histo_monai.utils.process.products import product


@dataclass(frozen=True)
class LinearModel:
    """Linear outputs.

    Attributes:
        weights: Shape (K, D).
        biases: Shape (K,).
    """

    weights: NDArray[np.float64]
    biases: NDArray[np.float64]

    def outputs(self, rows: NDArray) -> NDArray[np.float64]:
        """Logits, Shape (n, K), or scores, Shape (n, 1), of standardized features, Shape (n, D)."""
        return np.asarray(product(rows, self.weights.T) + self.biases)

    def module(self) -> nn.Module:
        """Equal function as a torch module, float32."""
        return mixture.linear(self.weights, self.biases)


def row_space(rows: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coordinates of rows in an orthonormal basis of their span, and the basis.

    A model with an L2 penalty has its weights in the span of its rows. Fitting it there needs n numbers per row instead
    of D.

    Returns:
        Coordinates, Shape (n, r), and basis, Shape (r, D), r = min(n, D).
    """
    if rows.shape[0] >= rows.shape[1]:
        return rows, np.eye(rows.shape[1])
    basis, triangle = np.linalg.qr(rows.T)
    return triangle.T, basis.T


def balanced(targets: NDArray, weights: NDArray) -> NDArray[np.float64]:
    """Weights of rows, scaled to equal sums per class and an unchanged total. Shape (n,)."""
    sums = np.bincount(targets, weights)
    scaled = weights / sums[targets]
    return np.asarray(scaled * (weights.sum() / scaled.sum()))
