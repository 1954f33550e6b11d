"""AUC and prediction probability for many weightings of the rows at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from histo_monai.utils.process.products import product

_AT_A_TIME = 2**19  # Numbers in each temporary array, 4 MiB.
_MOST_AT_A_TIME = 2**22  # Numbers in each array for pairs of rows, 32 MiB.


class RankedScores:
    """Scores of two classes, sorted once; the AUC of a weighting is then one cumulative sum.

    Args:
        is_positive: Shape (N,), bool.
        scores: Shape (N,).
        group_of_row: Shape (N,), int, 0..G-1.
    """

    def __init__(
        self, is_positive: NDArray[np.bool_], scores: NDArray[np.float64], group_of_row: NDArray[np.int64]
    ) -> None:
        order = np.argsort(scores, kind="stable")
        ordered = scores[order]
        self._is_first = np.r_[True, ordered[1:] != ordered[:-1]]  # of tied rows
        self._is_positive = is_positive[order]
        self._group = group_of_row[order]

    def auc(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """AUC per column of counts; NaN where a class has no weight.

        Rows are processed in parts, from the lowest score, to bound memory. All sums are of whole and half numbers,
        hence exact for any parts.

        Args:
            counts: Shape (G, B), whole numbers: multiplicity of each group.

        Returns:
            Shape (B,).
        """
        won, positives, below = np.zeros((3, counts.shape[1]))
        for part in self._parts(max(1, _AT_A_TIME // counts.shape[1])):
            positive, negative = self._by_score(part, counts)
            passed = np.cumsum(negative, axis=0) + below
            positives += positive.sum(axis=0)
            below = passed[-1].copy()
            passed -= negative / 2
            won += np.einsum("nb,nb->b", positive, passed)
        return ratio(won, positives * below)

    def _parts(self, step: int) -> Iterator[slice]:
        """Slices of at most `step` rows in order that keep tied rows together; longer where one tie exceeds `step`."""
        start, num = 0, len(self._group)
        while start < num:
            stop = min(start + step, num)
            while stop > start + 1 and stop < num and not self._is_first[stop]:
                stop -= 1
            if stop < num and not self._is_first[stop]:  # One score fills the part: extend to its last row.
                following = self._is_first[stop:]
                stop = stop + int(following.argmax()) if following.any() else num
            yield slice(start, stop)
            start = stop

    def _by_score(
        self, part: slice, counts: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Multiplicity of positives and negatives at each score of the part, shape (scores, B) each."""
        group, is_positive = self._group[part], self._is_positive[part]
        first = np.flatnonzero(self._is_first[part])
        if len(first) == 1:
            sides = (np.bincount(group[side], minlength=len(counts)) for side in (is_positive, ~is_positive))
            positive, negative = (product(side[None].astype(np.float64), counts) for side in sides)
            return positive, negative
        weights = counts[group]
        positive = weights * is_positive[:, None]
        weights -= positive
        if len(first) == len(group):
            return positive, weights
        return np.add.reduceat(positive, first, axis=0), np.add.reduceat(weights, first, axis=0)


class ConcordantPairs:
    """Prediction probability P_K of one reference and one prediction, for many weightings of groups.

    P_K = (C + T / 2) / (C + D + T), over pairs of rows with different references: C concordant, D discordant, T tied in
    the prediction. Smith, Dutton & Smith 1996.

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
        self._group = group_of_row[order]
        sizes = np.bincount(group_of_row)
        self._starts = np.cumsum(sizes) - sizes

    def probability(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """P_K per column of weights; NaN where all weighted rows have one reference.

        Args:
            weights: Shape (G, B): multiplicity of each group.

        Returns:
            Shape (B,).
        """
        right, pairs = np.zeros(weights.shape[1]), np.zeros(weights.shape[1])
        reference, predicted = self._reference, self._predicted
        step = max(1, min(256, _MOST_AT_A_TIME // len(reference)))  # Rows compared with all others at a time.
        for start in range(0, len(reference), step):
            block = slice(start, start + step)
            weights_of_row = weights[self._group[block]]
            higher = reference[block, None] > reference  # Each pair once, from its higher row.
            lead = np.sign(predicted[block, None] - predicted)
            for total, kernel in ((right, higher * (lead + 1) / 2), (pairs, higher.astype(np.float64))):
                by_group = np.add.reduceat(kernel, self._starts, axis=1)
                total += np.einsum("nb,nb->b", weights_of_row, product(by_group, weights))
        return ratio(right, pairs)


def ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quotient of non-negative sums; NaN where the denominator is zero."""
    empty = denominator == 0
    return np.where(empty, np.nan, numerator / np.where(empty, 1.0, denominator))
