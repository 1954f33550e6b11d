"""DeLong's variance for the mean of one-versus-rest AUCs, of rows or of whole patients or slides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from histo_monai.evaluation.comparison.paired import Spread, effective_groups
from histo_monai.evaluation.metrics import checks
from histo_monai.evaluation.metrics.delong import clustered_variances


@dataclass(frozen=True)
class MacroAuc:
    """A macro AUC, and how each row bears on it.

    Attributes:
        value: mean of the AUCs one class versus the rest, over the classes present; NaN if only one is.
        influence: Shape (N,): by how much the row's placements lift the value above what the rows of its class
            lift it on average. It is linear: the influence of a mean or difference of macro AUCs on the same
            rows is the mean or difference of their influences.
    """

    value: float
    influence: NDArray[np.float64]


def macro_auc_influence(labels: ArrayLike, probabilities: ArrayLike) -> MacroAuc:
    """Macro AUC with the influence of each row on it.

    A row of class c is a positive in the AUC of c and a negative in those of all other classes. Its influence is
    the sum of what DeLong, DeLong & Clarke-Pearson 1988 call its structural components over all of them, each
    over the number of rows it is averaged with, minus the mean over the rows of c. For two classes both AUCs
    are the same one, and the influences are DeLong's components themselves.

    Args:
        labels: Shape (N,), int, 0..K-1.
        probabilities: Shape (N, K).

    Raises:
        ValueError: If a label is no class or a row no probabilities.
    """
    classes, shares = checks.classes_and_probabilities(labels, probabilities)
    present = np.unique(classes)
    if len(present) < 2:
        return MacroAuc(float("nan"), np.zeros(len(classes)))
    value, influence = 0.0, np.zeros(len(classes))
    for k in present:
        positive = classes == k
        # Rank among all minus rank among one's own: how many of the other side score lower, ties counting half.
        below = stats.rankdata(shares[:, k])
        for side in (positive, ~positive):
            below[side] -= stats.rankdata(shares[side, k])
        placed = below / (positive.sum() * (~positive).sum() * len(present))
        value += float(placed[positive].sum())
        influence += np.where(positive, placed, -placed)
    sizes = np.maximum(np.bincount(classes), 1)
    return MacroAuc(value, influence - (np.bincount(classes, influence) / sizes)[classes])


def influence_spreads(
    labels: ArrayLike, influence: NDArray[np.float64], group_of_row: NDArray[np.int64]
) -> list[Spread]:
    """Variance of what has this influence, where whole groups of rows were drawn independently, class by class.

    Obuchowski 1997, "Nonparametric analysis of clustered ROC curve data", for any number of classes, see
    `evaluation.metrics.delong.clustered_variances`.

    Each class has the degrees of freedom of the groups that hold it (`effective_groups` of its rows, less one): few
    slides with tumor, one of them large, tell little however many slides there are without. The products of
    classes are shared out among the classes as their squares are.

    Args:
        labels: Shape (N,), int.
        influence: Shape (N,), as in `MacroAuc`.
        group_of_row: Shape (N,), int, 0..G-1.

    Returns:
        One for each class. Variances are 0 where no row has any influence, and NaN where a class lies in one group
        only (one row, where each row is its own group), or where the products of classes outweigh the squares:
        then nothing is known.
    """
    present, numbered = np.unique(np.asarray(labels), return_inverse=True)
    freedom = [effective_groups(group_of_row[numbered == k]) - 1 for k in range(len(present))]
    if not influence.any():
        return [Spread(0.0, max(free, 1.0)) for free in freedom]
    variances = clustered_variances(numbered, influence, group_of_row)
    if variances is None:
        return [Spread(float("nan"), free) for free in freedom]
    own, crossed = variances
    total = own.sum() + crossed
    if total <= 0:
        return [Spread(float("nan"), free) for free in freedom]
    shares = own / own.sum() * total
    return [Spread(float(share), free) for share, free in zip(shares, freedom, strict=True)]


def influence_variance(
    labels: ArrayLike, influence: NDArray[np.float64], group_of_row: NDArray[np.int64]
) -> float:
    """The sum of `influence_spreads`: DeLong's variance, or Obuchowski's where rows come in groups."""
    return sum(spread.variance for spread in influence_spreads(labels, influence, group_of_row))
