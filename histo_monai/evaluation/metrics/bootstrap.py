"""Bootstrap intervals that resample groups: patients or slides, not their patches."""

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
"""Name of a metric -> value on all rows, and on each replicate, shape (B,); NaN where undefined."""

_BLOCK = 32  # Most replicates at a time; fewer where _BLOCK_BYTES hold fewer, at least one.
_BLOCK_BYTES = 32 * 2**20
_FEWEST_DEFINED = 0.5


class Resampling:
    """Random multiplicities of groups in each replicate, common to several statistics.

    Args:
        num_rows: N, number of rows.
        groups: Shape (N,), the patient or slide of each row (any kind of id); None: each row is its own group.

    Attributes:
        num_groups: G, number of groups.
        group_of_row: Shape (N,), int, 0..G-1.

    Raises:
        ValueError: there are no rows, not one group per row, or a group is missing.
    """

    def __init__(self, num_rows: int, groups: ArrayLike | None, *, seed: int, num_replicates: int) -> None:
        if num_rows < 1:
            raise ValueError("a bootstrap needs at least one row")
        self.num_rows, self.num_replicates = num_rows, num_replicates
        self._seed, self._by_row = seed, groups is None
        self.group_of_row = np.arange(num_rows) if groups is None else checks.groups(groups, num_rows)
        self.num_groups = int(self.group_of_row.max()) + 1

    def blocks(self) -> Iterator[NDArray[np.float64]]:
        """Multiplicity of each group: arrays of shape (G, B), together `num_replicates` columns.

        B is 32, or fewer where 32 MiB hold fewer; B does not change the numbers.
        """
        rng = generator(self._seed, "bootstrap")
        width = _columns_that_fit(self.num_groups)
        for start in range(0, self.num_replicates, width):
            counts = np.empty((self.num_groups, min(width, self.num_replicates - start)))
            for column in counts.T:
                sample = rng.integers(self.num_groups, size=self.num_groups)
                column[:] = np.bincount(sample, minlength=self.num_groups)
            yield counts

    def weights(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Multiplicity of each row, shape (N, B), from the multiplicity of each group, (G, B)."""
        return counts if self._by_row else counts[self.group_of_row]

    def row_weights(self) -> Iterator[NDArray[np.float64]]:
        """Multiplicity of each row: the columns of `blocks`, shape (N, b) each, with b columns in 32 MiB."""
        width = _columns_that_fit(self.num_rows)
        for counts in self.blocks():
            for start in range(0, counts.shape[1], width):
                yield self.weights(counts[:, start : start + width])

    def estimate(
        self, value: float, replicates: ArrayLike, confidence: float = 0.95, *, center: bool = False
    ) -> Estimate:
        """Value with the percentile interval of its replicates.

        Undefined replicates (NaN) are left out. Both limits are NaN where the value or more than half of the replicates
        are undefined, or there is only one group.

        Args:
            value: of the statistic on all rows.
            replicates: Shape (num_replicates,).
            center: first shift the replicates by their bias, their mean minus the value.
        """
        defined = np.asarray(replicates, np.float64)
        defined = defined[~np.isnan(defined)]
        unknown = Estimate(float(value), np.nan, np.nan, self.num_groups)
        if np.isnan(value) or self.num_groups < 2 or len(defined) < _FEWEST_DEFINED * self.num_replicates:
            return unknown
        if center:
            defined = defined - defined.mean() + value
        tail = (1 - confidence) / 2
        low, high = np.quantile(defined, [tail, 1 - tail])
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
    """Value and percentile interval of any statistic, over groups resampled with replacement.

    Rows of one patient are similar, so an interval over rows is too narrow; an interval over patients is not (Davison &
    Hinkley 1997, section 3.8). Below about 20 groups it is somewhat narrow, too.

    Replicates with an undefined statistic, e.g. an AUC of one class, must be NaN; they are left out. The interval is
    NaN where more than half are undefined, or for one group.

    Args:
        statistic: arrays of rows -> number, independent of the order of the rows.
        arrays: arguments of `statistic`, each of shape (N, ...).
        groups: Shape (N,), patient or slide of each row; None resamples rows.
        seed: of the resampling; equal seeds and groups give equal replicates for any statistic.
        weighted: whether `statistic` has a keyword `weights`, shape (N, B), multiplicity of each row in each of B
            replicates, and returns (B,): e.g. `weighted_mean`. Avoids copies of resampled rows.

    Returns:
        n is the number of groups.

    Raises:
        ValueError: the arrays differ in length, there are no rows, or a group is missing.
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
    """Statistic of one model minus another's on common rows and replicates.

    Other arguments as in `grouped_bootstrap`.

    Args:
        statistic: called as `statistic(*shared, *first)` and `statistic(*shared, *second)`.
        shared: arguments common to both models, e.g. the labels.
        first: predictions of the first model, e.g. its probabilities.
        second: predictions of the second model.
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
    """Means of values (N,) under weights (N, B), shape (B,), for `grouped_bootstrap(..., weighted=True)`."""
    return np.asarray(product(np.asarray(values, np.float64), weights) / weights.sum(axis=0))


def _difference(
    statistic: Callable[..., Any], num_shared: int, num_first: int, *arrays: NDArray, **weights: NDArray
) -> Any:
    shared, own = arrays[:num_shared], arrays[num_shared:]
    first, second = own[:num_first], own[num_first:]
    return statistic(*shared, *first, **weights) - statistic(*shared, *second, **weights)


def _resampled_rows(resampling: Resampling) -> Iterator[NDArray[np.int64]]:
    """Row indices of each replicate; rows of a group repeat with its multiplicity."""
    rows = np.arange(resampling.num_rows)
    for counts in resampling.blocks():
        for times in counts.astype(np.int64).T:
            yield np.repeat(rows, times[resampling.group_of_row])


def _columns_that_fit(num: int) -> int:
    """Number of replicates at a time, for `num` numbers per replicate."""
    return max(1, min(_BLOCK, _BLOCK_BYTES // (8 * num)))
