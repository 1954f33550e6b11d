"""Accuracy, AUC and calibration of classifiers, without intervals.

Labels (N,), int, 0..K-1; probabilities (N, K), rows summing to 1. The decision is the largest probability, the first of
equal ones. A `ValueError` names the first invalid row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histo_monai.evaluation.metrics import checks
from histo_monai.evaluation.metrics.ranking import RankedScores
from histo_monai.evaluation.metrics.tallies import Tallies, bin_of


@dataclass(frozen=True)
class ReliabilityBin:
    """Rows with a confidence, the largest probability, in (low, high].

    Attributes:
        low: lower edge.
        high: upper edge.
        count: number of rows.
        confidence: mean confidence; NaN in an empty bin.
        accuracy: fraction of right rows; NaN in an empty bin.
    """

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def accuracy(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Fraction of right decisions."""
    return float(_tallies(labels, probabilities).accuracy()[0])


def balanced_accuracy(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean recall over the classes present."""
    classes, rows = checks.classes_and_probabilities(labels, probabilities)
    right = rows.argmax(axis=1) == classes
    return float(np.mean([right[classes == k].mean() for k in np.unique(classes)]))


def mean_one_versus_rest_accuracy(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean over the K classes of the accuracy of "this class or not": 1 - 2 e / K for an error rate e.

    Papers on the nine Kather classes report it as accuracy; it starts at 1 - 2 / K, so it is optimistic.
    """
    return float(_tallies(labels, probabilities).mean_one_versus_rest_accuracy()[0])


def weighted_f1(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """F1 of each class, averaged with the class's number of rows as weight; 0 for a class without right decisions."""
    return float(_tallies(labels, probabilities).weighted_f1()[0])


def macro_auc(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean of one-versus-rest AUCs over the classes present; NaN for one class."""
    classes, rows = checks.classes_and_probabilities(labels, probabilities)
    ranked = ranked_classes(classes, rows, np.zeros_like(classes))
    return float(macro_auc_of_counts(ranked, np.ones((1, 1)))[0])


def expected_calibration_error(labels: ArrayLike, probabilities: ArrayLike, num_bins: int = 15) -> float:
    """Mean distance between confidence and accuracy over equal-width bins of confidence (Guo et al. 2017).

    Top label only. It is at least 0, and on few rows positive even for a perfectly calibrated model.
    """
    return float(_tallies(labels, probabilities, num_bins).ece()[0])


def brier_score(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean over rows of the sum over classes of (probability - one-hot label) squared: 0 best, 2 worst.

    Brier 1950's sum over classes: for two classes, twice the binary Brier score (p - y) squared.
    """
    return float(_tallies(labels, probabilities).brier()[0])


def reliability(labels: ArrayLike, probabilities: ArrayLike, num_bins: int = 15) -> list[ReliabilityBin]:
    """Confidence and accuracy in each bin of `expected_calibration_error`, lowest first."""
    classes, rows = checks.classes_and_probabilities(labels, probabilities)
    confidence = rows.max(axis=1)
    right = rows.argmax(axis=1) == classes
    member = bin_of(confidence, num_bins)
    bins = []
    for i in range(num_bins):
        chosen = member == i
        count = int(chosen.sum())
        means = (confidence[chosen].mean(), right[chosen].mean()) if count else (np.nan, np.nan)
        bins.append(ReliabilityBin(i / num_bins, (i + 1) / num_bins, count, float(means[0]), float(means[1])))
    return bins


def ranked_classes(
    labels: NDArray[np.int64], probabilities: NDArray[np.float64], group_of_row: NDArray[np.int64]
) -> list[RankedScores]:
    """Ranked scores of each present class against the rest."""
    return [RankedScores(labels == k, probabilities[:, k], group_of_row) for k in np.unique(labels)]


def macro_auc_of_counts(ranked: list[RankedScores], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Macro AUC for multiplicities of groups (G, B), shape (B,), over the classes present; NaN for one class."""
    areas = np.array([scores.auc(counts) for scores in ranked])
    present = ~np.isnan(areas)
    num_present = present.sum(axis=0)
    total = np.where(present, areas, 0.0).sum(axis=0)
    return np.where(num_present > 0, total / np.maximum(num_present, 1), np.nan)


def _tallies(labels: ArrayLike, probabilities: ArrayLike, num_bins: int = 15) -> Tallies:
    if num_bins < 1:
        raise ValueError(f"num_bins is {num_bins}: expected at least one bin")
    return Tallies.count(*checks.classes_and_probabilities(labels, probabilities), num_bins)
