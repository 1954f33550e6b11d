"""Classification metrics from sums over rows, for all bootstrap replicates at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from histo_monai.evaluation.metrics.ranking import ratio
from histo_monai.utils.process.products import product


@dataclass(frozen=True)
class Tallies:
    """Sums over rows; leading dimensions are groups or replicates.

    Attributes:
        confusion: Shape (..., K, K), rows by true class and predicted class.
        gap: Shape (..., num_bins), confidence minus correctness, summed in each bin of confidence.
        squared: Shape (...), squared error of the probabilities.
    """

    confusion: NDArray[np.float64]
    gap: NDArray[np.float64]
    squared: NDArray[np.float64]

    @classmethod
    def count(
        cls,
        labels: NDArray[np.int64],
        probabilities: NDArray[np.float64],
        num_bins: int = 15,
        group_of_row: NDArray[np.int64] | None = None,
    ) -> Tallies:
        """Sums per group, the leading dimension; without groups, one group of all rows."""
        num_classes = probabilities.shape[1]
        group = np.zeros(len(labels), np.int64) if group_of_row is None else group_of_row
        num_groups = int(group.max()) + 1
        predicted = probabilities.argmax(axis=1)
        confidence = probabilities.max(axis=1)
        squared = np.square(probabilities).sum(axis=1) - 2 * probabilities[np.arange(len(labels)), labels] + 1

        def summed(cell: NDArray[np.int64], num_cells: int, values: NDArray | None) -> NDArray[np.float64]:
            flat = np.bincount(group * num_cells + cell, values, minlength=num_groups * num_cells)
            return flat.reshape(num_groups, num_cells).astype(np.float64)

        confusion = summed(labels * num_classes + predicted, num_classes**2, None)
        return cls(
            confusion.reshape(num_groups, num_classes, num_classes),
            summed(bin_of(confidence, num_bins), num_bins, confidence - (predicted == labels)),
            summed(np.zeros_like(labels), 1, squared)[:, 0],
        )

    def resampled(self, counts: NDArray[np.float64]) -> Tallies:
        """Sums of replicates, the leading dimension (B), for multiplicities of groups (G, B)."""
        num_groups = len(self.squared)
        by_replicate = counts.T
        return Tallies(
            product(by_replicate, self.confusion.reshape(num_groups, -1)).reshape(
                -1, *self.confusion.shape[1:]
            ),
            product(by_replicate, self.gap),
            product(by_replicate, self.squared),
        )

    @property
    def rows(self) -> NDArray[np.float64]:
        """Number of rows, shape (...)."""
        return self.confusion.sum(axis=(-2, -1))

    def accuracy(self) -> NDArray[np.float64]:
        """Fraction of right decisions, shape (...)."""
        return np.trace(self.confusion, axis1=-2, axis2=-1) / self.rows

    def mean_one_versus_rest_accuracy(self) -> NDArray[np.float64]:
        """1 - 2 e / K, shape (...): each error is two of the K decisions "this class or not"."""
        return 1 - 2 * (1 - self.accuracy()) / self.confusion.shape[-1]

    def weighted_f1(self) -> NDArray[np.float64]:
        """F1 of each class, weighted by its fraction of the rows; 0 for a class never decided rightly. Shape (...)."""
        true, predicted = self.confusion.sum(axis=-1), self.confusion.sum(axis=-2)
        right = np.diagonal(self.confusion, axis1=-2, axis2=-1)
        f1 = np.nan_to_num(ratio(2 * right, true + predicted))
        return (f1 * true).sum(axis=-1) / self.rows

    def ece(self) -> NDArray[np.float64]:
        """Expected calibration error, shape (...)."""
        return np.abs(self.gap).sum(axis=-1) / self.rows

    def brier(self) -> NDArray[np.float64]:
        """Mean squared distance of the probabilities from the one-hot label, shape (...)."""
        return self.squared / self.rows


def bin_of(confidence: NDArray[np.float64], num_bins: int) -> NDArray[np.int64]:
    """Equal-width bins (0, 1/M], (1/M, 2/M], ... of Guo et al. 2017; confidence 0 is in the first."""
    return np.clip(np.ceil(confidence * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
