"""DeLong's variance of the macro AUC, over rows, patients or slides."""

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
    """Macro AUC with the influence of each row.

    Attributes:
        value: mean of one-versus-rest AUCs over the classes present; NaN for one class.
        influence: Shape (N,): contribution of the row's placements to the value, minus the mean of the row's class. It
            is linear: the influence of a mean or difference of macro AUCs is the mean or difference of their
            influences.
    """

    value: float
    influence: NDArray[np.float64]


def macro_auc_influence(labels: ArrayLike, probabilities: ArrayLike) -> MacroAuc:
    """Macro AUC with the influence of each row.

    A row of class c is a positive in the AUC of c and a negative in all other AUCs. Its influence is the sum of its
    structural components (DeLong, DeLong & Clarke-Pearson 1988) over all AUCs, each divided by its number of rows,
    minus the mean over the rows of c. For two classes both AUCs are equal, and the influences are DeLong's components.

    Args:
        labels: Shape (N,), int, 0..K-1.
        probabilities: Shape (N, K).

    Raises:
        ValueError: a label is no class, or a row is not probabilities.
    """
    classes, rows = checks.classes_and_probabilities(labels, probabilities)
    present = np.unique(classes)
    if len(present) < 2:
        return MacroAuc(float("nan"), np.zeros(len(classes)))
    value, influence = 0.0, np.zeros(len(classes))
    for k in present:
        positive = classes == k
        # Rank among all rows minus rank in the own class: rows of the other class below, ties counting half.
        below = stats.rankdata(rows[:, k])
        for side in (positive, ~positive):
            below[side] -= stats.rankdata(rows[side, k])
        placed = below / (positive.sum() * (~positive).sum() * len(present))
        value += float(placed[positive].sum())
        influence += np.where(positive, placed, -placed)
    sizes = np.maximum(np.bincount(classes), 1)
    return MacroAuc(value, influence - (np.bincount(classes, influence) / sizes)[classes])


def influence_spreads(
    labels: ArrayLike, influence: NDArray[np.float64], group_of_row: NDArray[np.int64]
) -> list[Spread]:
    """Variance of a statistic over independent groups of rows, from its influence, by class.

    Obuchowski 1997, "Nonparametric analysis of clustered ROC curve data", for any number of classes
    (`evaluation.metrics.delong.clustered_variances`).

    Each class has the degrees of freedom of its groups (`effective_groups` of its rows, less one): few slides with
    tumor give few, whatever the number of slides without. Products of classes are distributed in proportion to the
    squares.

    Args:
        labels: Shape (N,), int.
        influence: Shape (N,), as in `MacroAuc`.
        group_of_row: Shape (N,), int, 0..G-1.

    Returns:
        One spread per class. Variances are 0 where all influences are 0. They are NaN where a class lies in one group
        (one row, for groups of one row), or the products of classes outweigh the squares.
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
    of_classes = own / own.sum() * total
    return [Spread(float(variance), free) for variance, free in zip(of_classes, freedom, strict=True)]
