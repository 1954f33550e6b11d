"""Bootstrap intervals that resample whole groups: patients or slides, not their patches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histo_monai.evaluation.metrics import checks
from histo_monai.evaluation.metrics.estimate import Estimate
from histo_monai.utils.process.products import product
from histo_monai.utils.randomness import generator

Replicates = dict[str, tuple[float, NDArray[np.float64]]]
"""Name of a metric -> its value on all rows, and on each replicate, shape (B,); NaN where it is undefined."""

_BLOCK = 32  # Replicates computed at a time, while they fit into _BLOCK_BYTES; at least one.
_BLOCK_BYTES = 32 * 2**20
_FEWEST_DEFINED = 0.5


class Resampling:
    """Which groups are drawn, and how often, in each replicate; the same for every statistic that shares it.

    Args:
        num_rows: N, number of rows.
        groups: Shape (N,), the patient or slide of each row (any kind of id); None: each row is its own group.

    Attributes:
        num_groups: G, number of groups.
        group_of_row: Shape (N,), int, 0..G-1.

    Raises:
        ValueError: If there are no rows, not one group per row, or a group is missing.
    """

    def __init__(self, num_rows: int, groups: ArrayLike | None, *, seed: int, num_replicates: int) -> None:
        if num_rows < 1:
            raise ValueError("a bootstrap needs at least one row")
        self.num_rows, self.num_replicates = num_rows, num_replicates
        self._seed, self._by_row = seed, groups is None
        self.group_of_row = np.arange(num_rows) if groups is None else checks.groups(groups, num_rows)
        self.num_groups = int(self.group_of_row.max()) + 1

    def blocks(self) -> Iterator[NDArray[np.float64]]:
        """How often each group was drawn: arrays of shape (G, B), together `num_replicates` columns.

        B is 32, or fewer where there are so many groups that 32 MiB hold no more; the draws are the same.
        """
        random = generator(self._seed, "bootstrap")
        width = _columns_that_fit(self.num_groups)
        for start in range(0, self.num_replicates, width):
            counts = np.empty((self.num_groups, min(width, self.num_replicates - start)))
            for column in counts.T:
                drawn = random.integers(self.num_groups, size=self.num_groups)
                column[:] = np.bincount(drawn, minlength=self.num_groups)
            yield counts

    def weights(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """How often each row occurs, shape (N, B), given how often each group was drawn, (G, B)."""
        return counts if self._by_row else counts[self.group_of_row]

    def row_weights(self) -> Iterator[NDArray[np.float64]]:
        """How often each row was drawn: the columns of `blocks`, each shape (N, b), b of them as 32 MiB hold."""
        width = _columns_that_fit(self.num_rows)
        for counts in self.blocks():
            for start in range(0, counts.shape[1], width):
                yield self.weights(counts[:, start : start + width])

    def estimate(
        self, value: float, replicates: ArrayLike, confidence: float = 0.95, *, center: bool = False
    ) -> Estimate:
        """The percentile interval of the replicates around a value.

        Undefined replicates (NaN) are left out. Where the value itself is undefined, or more than half of the
        replicates are, or there is only one group, both ends are NaN.

        Args:
            value: of the statistic on all rows.
            replicates: Shape (num_replicates,).
            center: shift the replicates by their bias, their mean minus the value, first.
        """
        drawn = np.asarray(replicates, np.float64)
        drawn = drawn[~np.isnan(drawn)]
        unknown = Estimate(float(value), np.nan, np.nan, self.num_groups)
        if np.isnan(value) or self.num_groups < 2 or len(drawn) < _FEWEST_DEFINED * self.num_replicates:
            return unknown
        if center:
            drawn = drawn - drawn.mean() + value
        tail = (1 - confidence) / 2
        low, high = np.quantile(drawn, [tail, 1 - tail])
        return Estimate(float(value), float(low), float(high), self.num_groups)


def grouped_bootstrap(
    statistic: Callable[..., Any],
    arrays: Sequence[ArrayLike],
    groups: ArrayLike | None,
    *,
    seed: int,
    num_replicates: int = 2000,
    confidence: float = 0.95,
    weighted: bool = False,
) -> Estimate:
    """Value and percentile interval of any statistic; whole groups are drawn with replacement.

    Rows of one patient resemble each other, and an interval that resamples rows is then too narrow; one that
    resamples patients is not (Davison & Hinkley 1997, section 3.8). With few groups, below about 20, even this
    one is somewhat narrow.

    Replicates on which the statistic is undefined, e.g. an AUC when one class was not drawn, must come back as
    NaN; they are left out, and where more than half are undefined the interval is NaN. With one group nothing
    is known of the spread between groups: the interval is NaN.

    Args:
        statistic: arrays of rows -> number. It must not depend on the order of the rows.
        arrays: what it takes, each of shape (N, ...).
        groups: Shape (N,), patient or slide of each row; None resamples rows.
        seed: of the resampling; the same seed and groups draw the same replicates for any statistic.
        weighted: the statistic takes a keyword `weights`, shape (N, B), how often each row occurs in each of B
            replicates, and returns (B,): e.g. `weighted_mean`. Saves building resampled rows.

    Returns:
        n is the number of groups.

    Raises:
        ValueError: If the arrays differ in length, there are no rows, or a group is missing.
    """
    columns = [np.asarray(array) for array in arrays]
    lengths = sorted({len(column) for column in columns})
    if len(lengths) != 1:
        raise ValueError(f"a bootstrap needs arrays with the same rows, got lengths {lengths}")
    resampling = Resampling(lengths[0], groups, seed=seed, num_replicates=num_replicates)
    if weighted:
        value = statistic(*columns, weights=np.ones((lengths[0], 1)))[0]
        replicates = [
            number for weights in resampling.row_weights() for number in statistic(*columns, weights=weights)
        ]
    else:
        value = statistic(*columns)
        replicates = [
            statistic(*(column[rows] for column in columns)) for rows in _resampled_rows(resampling)
        ]
    return resampling.estimate(value, replicates, confidence)


def paired_difference(
    statistic: Callable[..., Any],
    shared: Sequence[ArrayLike],
    first: Sequence[ArrayLike],
    second: Sequence[ArrayLike],
    groups: ArrayLike | None,
    *,
    seed: int,
    num_replicates: int = 2000,
    confidence: float = 0.95,
    weighted: bool = False,
) -> Estimate:
    """Statistic of one model minus that of another on the same rows, each replicate applied to both.

    Args:
        statistic: `statistic(*shared, *first)` and `statistic(*shared, *second)`.
        shared: what both models have in common, e.g. the labels.
        first: predictions of the first model, e.g. its probabilities.
        second: predictions of the second.
        groups: as `grouped_bootstrap`, and so all that follows.
    """
    return grouped_bootstrap(
        partial(_difference, statistic, len(shared), len(first)),
        (*shared, *first, *second),
        groups,
        seed=seed,
        num_replicates=num_replicates,
        confidence=confidence,
        weighted=weighted,
    )


def weighted_mean(values: NDArray, *, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means of values (N,) under weights (N, B), shape (B,): for `grouped_bootstrap(..., weighted=True)`."""
    return np.asarray(product(np.asarray(values, np.float64), weights) / weights.sum(axis=0))


def _difference(
    statistic: Callable[..., Any], num_shared: int, num_first: int, *arrays: NDArray, **weights: NDArray
) -> Any:
    shared, own = arrays[:num_shared], arrays[num_shared:]
    first, second = own[:num_first], own[num_first:]
    return statistic(*shared, *first, **weights) - statistic(*shared, *second, **weights)


def _resampled_rows(resampling: Resampling) -> Iterator[NDArray[np.int64]]:
    """Row indices of each replicate; a group drawn twice has each of its rows twice."""
    rows = np.arange(resampling.num_rows)
    for counts in resampling.blocks():
        for times in counts.astype(np.int64).T:
            yield np.repeat(rows, times[resampling.group_of_row])


def _columns_that_fit(num: int) -> int:
    """Replicates at a time, of this many numbers each."""
    return max(1, min(_BLOCK, _BLOCK_BYTES // (8 * num)))
