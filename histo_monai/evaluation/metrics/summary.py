"""All reported metrics of a prediction, with intervals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histo_monai.evaluation.metrics import checks
from histo_monai.evaluation.metrics.bootstrap import Resampling
from histo_monai.evaluation.metrics.classification import macro_auc_of_counts, ranked_classes
from histo_monai.evaluation.metrics.estimate import Estimate
from histo_monai.evaluation.metrics.icc import Form, intraclass_correlation
from histo_monai.evaluation.metrics.ranking import ConcordantPairs
from histo_monai.evaluation.metrics.tallies import Tallies
from histo_monai.utils.process.products import product

_ICC_FORMS: dict[str, Form] = {"icc": "ICC2", "icc1": "ICC1", "icc3": "ICC3"}


def classification_estimates(
    labels: ArrayLike,
    probabilities: ArrayLike,
    groups: ArrayLike | None,
    *,
    seed: int,
    num_replicates: int = 2000,
) -> dict[str, Estimate]:
    """Classification and calibration metrics with 95 % intervals from one grouped bootstrap.

    Macro AUC is over the classes present, in the rows and in each replicate. Resampling inflates calibration errors,
    which are sums of distances: the replicates of `ece` are shifted by their mean excess before percentiles, and its
    lower limit is at least 0.

    Args:
        labels: Shape (N,), int, 0..K-1.
        probabilities: Shape (N, K).
        groups: Shape (N,), patient or slide; None: rows.

    Returns:
        accuracy, mean_one_versus_rest_accuracy, weighted_f1, macro_auc, ece (15 bins), brier (sum over classes); n is
        the number of groups.

    Raises:
        ValueError: a label is no class, a row is not probabilities, or a group is missing.
    """
    classes, rows = checks.classes_and_probabilities(labels, probabilities)
    resampling = Resampling(len(classes), groups, seed=seed, num_replicates=num_replicates)
    of_group = Tallies.count(classes, rows, group_of_row=resampling.group_of_row)
    ranked = ranked_classes(classes, rows, resampling.group_of_row)

    def values(counts: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        tallies = of_group.resampled(counts)
        return {
            "accuracy": tallies.accuracy(),
            "mean_one_versus_rest_accuracy": tallies.mean_one_versus_rest_accuracy(),
            "weighted_f1": tallies.weighted_f1(),
            "macro_auc": macro_auc_of_counts(ranked, counts),
            "ece": tallies.ece(),
            "brier": tallies.brier(),
        }

    estimates = _bootstrapped(resampling, values, centered=("ece",))
    ece = estimates["ece"]
    return estimates | {"ece": Estimate(ece.value, float(np.maximum(ece.low, 0.0)), ece.high, ece.n)}


def score_estimates(
    reference: ArrayLike,
    predicted: ArrayLike,
    groups: ArrayLike | None,
    *,
    seed: int,
    num_replicates: int = 2000,
) -> dict[str, Estimate]:
    """Agreement of a predicted score with one reference score.

    Intervals of intraclass correlations are F-based, assume independent rows and have n rows. The other intervals are
    from a grouped bootstrap and have n groups. Correlations of one row are NaN.

    Args:
        reference: Shape (N,).
        predicted: Shape (N,), in the unit of the reference.
        groups: Shape (N,), patient or slide; None: rows.

    Returns:
        icc, ICC(2,1), the headline; icc1 and icc3, ICC(1,1) and ICC(3,1); pk, the prediction probability; mae, the mean
        absolute error.

    Raises:
        ValueError: a score is NaN, the lengths differ, or a group is missing.
    """
    truth, score = checks.column("reference", reference), checks.column("predicted", predicted)
    checks.same_length(reference=truth, predicted=score)
    resampling = Resampling(len(truth), groups, seed=seed, num_replicates=num_replicates)
    pairs = ConcordantPairs(truth, score, resampling.group_of_row)
    distance = np.bincount(resampling.group_of_row, np.abs(truth - score))
    size = np.bincount(resampling.group_of_row)

    def values(counts: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        return {"pk": pairs.probability(counts), "mae": product(distance, counts) / product(size, counts)}

    ratings = np.column_stack([truth, score])
    correlations = {name: intraclass_correlation(ratings, form) for name, form in _ICC_FORMS.items()}
    return correlations | _bootstrapped(resampling, values)


def regression_estimates(
    ratings_a: ArrayLike,
    ratings_b: ArrayLike,
    predicted: ArrayLike,
    groups: ArrayLike | None,
    *,
    seed: int,
    num_replicates: int = 2000,
) -> dict[str, Estimate]:
    """`score_estimates` of a prediction against each of two raters, with the suffixes `_a` and `_b`."""
    return {
        f"{name}_{rater}": estimate
        for rater, ratings in (("a", ratings_a), ("b", ratings_b))
        for name, estimate in score_estimates(
            ratings, predicted, groups, seed=seed, num_replicates=num_replicates
        ).items()
    }


def human_estimates(
    ratings_a: ArrayLike,
    ratings_b: ArrayLike,
    groups: ArrayLike | None,
    *,
    seed: int,
    num_replicates: int = 2000,
) -> dict[str, Estimate]:
    """Agreement of rater B with rater A, the human ceiling: `score_estimates` with A as the reference of `pk`."""
    return score_estimates(ratings_a, ratings_b, groups, seed=seed, num_replicates=num_replicates)


def _bootstrapped(
    resampling: Resampling,
    values: Callable[[NDArray[np.float64]], dict[str, NDArray[np.float64]]],
    centered: tuple[str, ...] = (),
) -> dict[str, Estimate]:
    """Estimates from one resampling; `values` maps multiplicities of groups (G, B) to metrics (B,)."""
    point = values(np.ones((resampling.num_groups, 1)))
    blocks = [values(counts) for counts in resampling.blocks()]
    return {
        name: resampling.estimate(
            float(value[0]), np.concatenate([block[name] for block in blocks]), center=name in centered
        )
        for name, value in point.items()
    }
