"""Value and bootstrap replicates of every headline metric, from one resampling that several models share."""

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
"""Metrics of class probabilities, as `metric_replicates` names them; larger is better."""
AGREEMENT = ("icc",)
"""Metrics of a score against a reference score: ICC(2,1); larger is better."""

_NOTHING = 1e-12  # Of the squares: what rounding leaves of the spread of equal numbers.

_Values = Callable[[NDArray[np.float64]], dict[str, NDArray[np.float64]]]


def metric_replicates(reference: ArrayLike, predictions: ArrayLike, resampling: Resampling) -> Replicates:
    """What one model is worth on all rows, and on every replicate of a resampling of their groups.

    Models of the same rows that share the resampling have replicates of the same draws: the difference of two
    of them, replicate by replicate, is the paired one.

    Args:
        reference: Shape (N,): classes, int, 0..K-1, or scores.
        predictions: Shape (N, K), probabilities; or (N,), scores in the unit of the reference.
        resampling: of these N rows.

    Returns:
        Of probabilities `CLASSIFICATION`, of scores `AGREEMENT`.

    Raises:
        ValueError: If a label is no class, a row no probabilities, a score NaN, or the rows are not those of
            the resampling.
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
    labels, shares = checks.classes_and_probabilities(reference, predictions)
    of_group = Tallies.count(labels, shares, group_of_row=resampling.group_of_row)
    ranked = ranked_classes(labels, shares, resampling.group_of_row)

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
    truth, guess = checks.column("reference", reference), checks.column("predictions", predictions)
    checks.same_length(reference=truth, predictions=guess)
    center = (truth.mean() + guess.mean()) / 2  # Of both: sums of squares then lose no digits.
    x, y = truth - center, guess - center
    terms = (np.ones_like(x), x, y, x * x, y * y, x * y)
    sums = np.array([np.bincount(resampling.group_of_row, term) for term in terms])
    return lambda counts: {"icc": _icc_of_sums(product(sums, counts))}


def _icc_of_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """ICC(2,1) of two raters from sums over rows of 1, x, y, x², y², xy. Shape (6, B) -> (B,).

    With two raters the mean squares of rows and error are ((Sxx + Syy) / 2 ± Sxy) / (n - 1), that of raters
    n (mean x - mean y)² / 2. NaN where all ratings are one number.
    """
    n, x, y, xx, yy, xy = sums
    freedom = np.maximum(n - 1, 1.0)
    shared = (xy - x * y / n) / freedom
    spread = (xx - x * x / n + yy - y * y / n) / freedom
    apart = np.square((x - y) / n)
    denominator = spread + apart - (spread - 2 * shared) / n
    empty = denominator <= _NOTHING * (xx + yy) / n
    return np.where(empty, np.nan, 2 * shared / np.where(empty, 1.0, denominator))
