"""Values and bootstrap replicates of headline metrics, from one resampling common to several models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histo_monai.evaluation.metrics import checks
from histo_monai.evaluation.metrics.bootstrap import Replicates, Resampling
from histo_monai.evaluation.metrics.classification import macro_auc_of_counts, ranked_classes
from histo_monai.evaluation.metrics.tallies import Tallies
from histo_monai.utils.process.products import product

CLASSIFICATION = ("accuracy", "mean_one_versus_rest_accuracy", "weighted_f1", "macro_auc")
"""Metrics of class probabilities in `metric_replicates`; larger is better."""
AGREEMENT = ("icc",)
"""Metrics of a score against a reference score: ICC(2,1); larger is better."""

_NOTHING = 1e-12  # Relative rounding of the spread of equal numbers.

_Values = Callable[[NDArray[np.float64]], dict[str, NDArray[np.float64]]]


def metric_replicates(reference: ArrayLike, predictions: ArrayLike, resampling: Resampling) -> Replicates:
    """Metrics of one model on all rows, and on every replicate of a resampling of groups.

    Replicates of models with a common resampling are paired: their difference is the paired difference.

    Args:
        reference: Shape (N,): classes, int, 0..K-1, or scores.
        predictions: Shape (N, K), probabilities; or (N,), scores in the unit of the reference.
        resampling: of these N rows.

    Returns:
        `CLASSIFICATION` of probabilities, `AGREEMENT` of scores.

    Raises:
        ValueError: a label is no class, a row is not probabilities, a score is NaN, or the number of rows differs from
            the resampling's.
    """
    if len(np.asarray(reference)) != resampling.num_rows:
        raise ValueError(
            f"{len(np.asarray(reference))} references for a resampling of {resampling.num_rows} rows"
        )
    values = (_of_classes if np.ndim(predictions) == 2 else _of_scores)(reference, predictions, resampling)
    point = values(np.ones((resampling.num_groups, 1)))
    blocks = [values(counts) for counts in resampling.blocks()]
    return {
        name: (float(value[0]), np.concatenate([block[name] for block in blocks]))
        for name, value in point.items()
    }


def _of_classes(reference: ArrayLike, predictions: ArrayLike, resampling: Resampling) -> _Values:
    labels, rows = checks.classes_and_probabilities(reference, predictions)
    of_group = Tallies.count(labels, rows, group_of_row=resampling.group_of_row)
    ranked = ranked_classes(labels, rows, resampling.group_of_row)

    def values(counts: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        tallies = of_group.resampled(counts)
        areas = macro_auc_of_counts(ranked, counts)
        numbers = (
            tallies.accuracy(),
            tallies.mean_one_versus_rest_accuracy(),
            tallies.weighted_f1(),
            areas,
        )
        return dict(zip(CLASSIFICATION, numbers, strict=True))

    return values


def _of_scores(reference: ArrayLike, predictions: ArrayLike, resampling: Resampling) -> _Values:
    truth, score = checks.column("reference", reference), checks.column("predictions", predictions)
    checks.same_length(reference=truth, predictions=score)
    center = (truth.mean() + score.mean()) / 2  # centered, so that sums of squares lose no digits
    x, y = truth - center, score - center
    terms = (np.ones_like(x), x, y, x * x, y * y, x * y)
    sums = np.array([np.bincount(resampling.group_of_row, term) for term in terms])
    return lambda counts: {"icc": _icc_of_sums(product(sums, counts))}


def _icc_of_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """ICC(2,1) of two raters from sums over rows of 1, x, y, x², y², xy. Shape (6, B) -> (B,).

    For two raters the mean squares of rows and error are ((Sxx + Syy) / 2 ± Sxy) / (n - 1), the mean square of raters
    is n (mean x - mean y)² / 2. NaN where all ratings are one number.
    """
    n, x, y, xx, yy, xy = sums
    freedom = np.maximum(n - 1, 1.0)
    shared = (xy - x * y / n) / freedom
    spread = (xx - x * x / n + yy - y * y / n) / freedom
    apart = np.square((x - y) / n)
    denominator = spread + apart - (spread - 2 * shared) / n
    empty = denominator <= _NOTHING * (xx + yy) / n
    return np.where(empty, np.nan, 2 * shared / np.where(empty, 1.0, denominator))
