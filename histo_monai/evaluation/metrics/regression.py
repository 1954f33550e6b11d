"""Agreement of a predicted score with a reference score, without intervals."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from histo_monai.evaluation.metrics import checks
from histo_monai.evaluation.metrics.ranking import ConcordantPairs


def mean_absolute_error(reference: ArrayLike, predicted: ArrayLike) -> float:
    """Mean distance between two scores, shape (N,) each, in their unit."""
    truth, score = checks.column("reference", reference), checks.column("predicted", predicted)
    checks.same_length(reference=truth, predicted=score)
    return float(np.abs(truth - score).mean())


def prediction_probability(reference: ArrayLike, predicted: ArrayLike) -> float:
    """P_K: probability that the prediction orders two rows of different references correctly.

    P_K = (C + T / 2) / (C + D + T) over the pairs not tied in the reference: concordant, tied in the prediction,
    discordant. 0.5 is chance, 1 perfect order. It is (Somers' d + 1) / 2 with the reference as the independent
    variable; for a binary reference it is the AUC. Smith, Dutton & Smith 1996, Anesthesiology 84; the measure of the
    BreastPathQ challenge.

    Args:
        reference: Shape (N,), any ordinal unit.
        predicted: Shape (N,).

    Returns:
        NaN where all rows have one reference.
    """
    truth, score = checks.column("reference", reference), checks.column("predicted", predicted)
    checks.same_length(reference=truth, predicted=score)
    pairs = ConcordantPairs(truth, score, np.arange(len(truth)))
    return float(pairs.probability(np.ones((len(truth), 1)))[0])
