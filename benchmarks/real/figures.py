"""Metrics of pooled held-out predictions, with intervals that resample patients and label subsets, crossed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from histo_monai.evaluation.comparison.replicates import metric_replicates
from histo_monai.evaluation.metrics import Estimate, Resampling
from histo_monai.utils.process.products import product
from histo_monai.utils.randomness import generator

REPLICATES = 2000
SEED = 0
FEWEST_PATIENTS = 3
"""Below it there is no interval and no test."""


class Replicates(NamedTuple):
    """A metric on all patients, and on each replicate of them, Shape (B,); NaN where it is undefined."""

    value: float
    replicates: NDArray[np.float64]


Metric = Callable[[NDArray, NDArray, Resampling], Replicates]
"""Reference, Shape (n,); predictions, Shape (n, K); which patients each replicate has."""


def balanced_accuracy(reference: NDArray, predictions: NDArray, resampling: Resampling) -> Replicates:
    """Mean over the classes in a replicate of the fraction of the class that is recognized."""
    num_classes = predictions.shape[1]
    is_class = (reference[:, None] == np.arange(num_classes)).astype(np.float64)
    is_right = is_class * (predictions.argmax(axis=1) == reference)[:, None]
    groups = resampling.group_of_row
    sizes, right = (
        np.stack([np.bincount(groups, column, resampling.num_groups) for column in of_rows.T])
        for of_rows in (is_class, is_right)
    )

    def values(counts: NDArray[np.float64]) -> NDArray[np.float64]:
        total, correct = product(sizes, counts), product(right, counts)
        recalls = np.where(total > 0, correct / np.maximum(total, 1.0), np.nan)
        return np.asarray(np.nanmean(recalls, axis=0))

    point = values(np.ones((resampling.num_groups, 1)))[0]
    return Replicates(float(point), np.concatenate([values(counts) for counts in resampling.blocks()]))


def auc(reference: NDArray, predictions: NDArray, resampling: Resampling) -> Replicates:
    """Area under the ROC curve; of more than two classes the mean of each class against the rest."""
    return Replicates(*metric_replicates(reference, predictions, resampling)["macro_auc"])


def icc(reference: NDArray, predictions: NDArray, resampling: Resampling) -> Replicates:
    """ICC(2,1) of predicted and reference scores."""
    return Replicates(*metric_replicates(reference, predictions[:, 0], resampling)["icc"])


METRICS: dict[str, Metric] = {"balanced_accuracy": balanced_accuracy, "auc": auc, "icc": icc}


def crossed(
    metric: Metric, reference: NDArray, patients: NDArray, predictions: Sequence[NDArray]
) -> tuple[Replicates, Resampling]:
    """The mean of a metric over label subsets, and replicates that resample patients and subsets independently.

    Owen's pigeonhole bootstrap (2007): patients and subsets are two crossed factors. A replicate takes patients with
    replacement, subsets with replacement, and the mean over these subsets of the metric over these patients. Models of
    the same patients and number of subsets have the same replicates, so differences of replicates are paired.

    Args:
        metric: one of `METRICS`.
        reference: classes by number, or scores; Shape (n,).
        patients: of each row; Shape (n,).
        predictions: of each label subset, Shape (n, K).
    """
    resampling = Resampling(len(reference), patients, seed=SEED, num_replicates=REPLICATES)
    of_subsets = [metric(reference, of_subset, resampling) for of_subset in predictions]
    weights = subset_weights(len(of_subsets))
    table = np.stack([of_subset.replicates for of_subset in of_subsets])
    mean = np.where(weights > 0, weights * table, 0.0).sum(axis=0)
    return Replicates(float(np.mean([of_subset.value for of_subset in of_subsets])), mean), resampling


def subset_weights(num_subsets: int) -> NDArray[np.float64]:
    """How often each label subset is in each replicate, divided by their number; Shape (num_subsets, REPLICATES)."""
    chosen = generator(SEED, "label subsets", num_subsets).integers(
        num_subsets, size=(REPLICATES, num_subsets)
    )
    return np.stack([np.bincount(row, minlength=num_subsets) for row in chosen], axis=1) / num_subsets


def estimate(replicates: Replicates, resampling: Resampling) -> Estimate:
    """Value and 95 % percentile interval; without an interval below `FEWEST_PATIENTS`."""
    if resampling.num_groups < FEWEST_PATIENTS:
        return Estimate(replicates.value, np.nan, np.nan, resampling.num_groups)
    return resampling.estimate(replicates.value, replicates.replicates)


def difference(first: Replicates, second: Replicates) -> Replicates:
    """Of two models, replicate by replicate."""
    return Replicates(first.value - second.value, first.replicates - second.replicates)
