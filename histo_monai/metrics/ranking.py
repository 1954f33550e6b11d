"""Statistics of pairs of rows, for many weightings of the rows at once: AUC and the prediction probability."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from histo_monai.products import product

_BLOCK = 256  # Rows compared with all others at a time.


class RankedScores:
    """Scores of two classes, sorted once; then the AUC for row weights is one cumulative sum.

    Args:
        is_positive: Shape (N,), bool.
        scores: Shape (N,).
    """

    def __init__(self, is_positive: NDArray[np.bool_], scores: NDArray[np.float64]) -> None:
        self._order = np.argsort(scores, kind="stable")
        ordered = scores[self._order]
        self._starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        self._is_positive = is_positive[self._order].astype(np.float64)[:, None]

    def auc(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """AUC per column of weights; NaN where a class has no weight.

        Args:
            weights: Shape (N, B): how often each row counts.

        Returns:
            Shape (B,).
        """
        ordered = weights[self._order]
        positive = ordered * self._is_positive
        negative = ordered - positive
        if len(self._starts) < len(ordered):  # Tied rows fall together.
            positive = np.add.reduceat(positive, self._starts, axis=0)
            negative = np.add.reduceat(negative, self._starts, axis=0)
        below = np.cumsum(negative, axis=0)
        pairs = positive.sum(axis=0) * below[-1]
        below -= negative / 2
        return ratio(np.einsum("nb,nb->b", positive, below), pairs)


class ConcordantPairs:
    """Prediction probability P_K of one reference and one prediction, for many weightings of groups of rows.

    P_K = (C + T / 2) / (C + D + T): of all pairs of rows that differ in the reference, those that the
    prediction orders alike, C, contrariwise, D, or not at all, T. Smith, Dutton & Smith 1996.

    Args:
        reference: Shape (N,).
        predicted: Shape (N,).
        group_of_row: Shape (N,), int, 0..G-1, every group with a row.
    """

    def __init__(
        self,
        reference: NDArray[np.float64],
        predicted: NDArray[np.float64],
        group_of_row: NDArray[np.int64],
    ) -> None:
        order = np.argsort(group_of_row, kind="stable")
        self._reference, self._predicted = reference[order], predicted[order]
        self._sizes = np.bincount(group_of_row)
        self._starts = np.cumsum(self._sizes) - self._sizes

    def probability(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """P_K per column of weights; NaN where no two rows differ in the reference.

        Args:
            weights: Shape (G, B): how often each group counts.

        Returns:
            Shape (B,).
        """
        right, pairs = np.zeros(weights.shape[1]), np.zeros(weights.shape[1])
        weights_of_row = np.repeat(weights, self._sizes, axis=0)
        reference, predicted = self._reference, self._predicted
        for start in range(0, len(reference), _BLOCK):
            block = slice(start, start + _BLOCK)
            higher = reference[block, None] > reference  # Each pair once, from its higher row.
            lead = np.sign(predicted[block, None] - predicted)
            for total, kernel in ((right, higher * (lead + 1) / 2), (pairs, higher.astype(np.float64))):
                by_group = np.add.reduceat(kernel, self._starts, axis=1)
                total += np.einsum("nb,nb->b", weights_of_row[block], product(by_group, weights))
        return ratio(right, pairs)


def ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quotient of non-negative sums; NaN where the denominator is zero."""
    empty = denominator == 0
    return np.where(empty, np.nan, numerator / np.where(empty, 1.0, denominator))
