"""Sets of classes for an error rate, from held-out predictions of the labels; without a single class a model abstains.

Split-conformal prediction (Vovk, Gammerman & Shafer 2005) with scores by cross-validation, as in CV+ (Barber et al.
2021). Every patient counts the same (Dunn, Wasserman & Ramdas 2022), as patches of a patient are alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

RATES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
"""Error rates that a model's file has a threshold for."""
SHOWN = (0.05, 0.1, 0.2)
"""Error rates of summaries."""
NONE = -1
"""As a class number: no answer."""
_ROUNDING = 1e-9


def label_scores(probabilities: NDArray, targets: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 minus the probability of the label, Shape (n,).

    Args:
        probabilities: Shape (n, K).
        targets: class numbers, Shape (n,).
    """
    return 1 - np.asarray(probabilities, np.float64)[np.arange(len(targets)), targets]


def patient_weights(patients: NDArray) -> NDArray[np.float64]:
    """Weights by which every patient counts the same; sum 1, Shape (n,)."""
    _, owners, counts = np.unique(patients, return_inverse=True, return_counts=True)
    weights: NDArray[np.float64] = 1 / (len(counts) * counts[owners])
    return weights


def thresholds(scores: NDArray, patients: NDArray, rates: Sequence[float]) -> list[float]:
    """Weighted quantile of the scores at ceil((n + 1) (1 - rate)) / n for each error rate; 1, everything, above 1.

    Args:
        scores: `label_scores`, Shape (n,).
        patients: Shape (n,).
    """
    num = len(scores)
    if num == 0:
        return [1.0] * len(rates)
    order = np.argsort(scores)
    reached = np.cumsum(patient_weights(patients)[order])
    levels = np.array([math.ceil((num + 1) * (1 - rate) - _ROUNDING) / num for rate in rates])
    places = np.searchsorted(reached, levels - _ROUNDING)
    return [float(scores[order[place]]) if place < num else 1.0 for place in places]


def prediction_sets(probabilities: NDArray, threshold: NDArray | float) -> NDArray[np.bool_]:
    """Whether each class is in the set of each row, Shape (n, K).

    Args:
        threshold: one, or one for each row, Shape (n, 1).
    """
    sets: NDArray[np.bool_] = 1 - np.asarray(probabilities, np.float64) <= threshold + _ROUNDING
    return sets


def single_answers(probabilities: NDArray, threshold: NDArray | float) -> NDArray[np.int64]:
    """Class number of each set of one class, else `NONE`; Shape (n,)."""
    sets = prediction_sets(probabilities, threshold)
    return np.where(sets.sum(axis=1) == 1, sets.argmax(axis=1), NONE)


def calibration(probabilities: NDArray, targets: NDArray[np.int64], patients: NDArray) -> dict[str, Any]:
    """Thresholds of a model and what they gave on labels of left-out patients, for the model's description.

    Coverage is the fraction of labels in their set. A patient's sets have the threshold of the other patients.

    Args:
        probabilities: of all labels, by models without the patient. Shape (n, K).
        targets: class numbers, Shape (n,).
        patients: Shape (n,).
    """
    scores, weights = label_scores(probabilities, targets), patient_weights(patients)
    names = np.unique(patients)
    without = np.empty((len(scores), len(RATES)))
    for name in names:
        others = patients != name
        without[~others] = thresholds(scores[others], patients[others], RATES)
    is_right = np.argmax(probabilities, axis=1) == targets
    rows = []
    for number, (rate, threshold) in enumerate(zip(RATES, thresholds(scores, patients, RATES), strict=True)):
        answers = single_answers(probabilities, without[:, [number]])
        answered = float(weights[answers != NONE].sum())
        rows.append(
            {
                "rate": rate,
                "threshold": threshold,
                "coverage": float(weights[scores <= without[:, number] + _ROUNDING].sum()),
                "answered": answered,
                "accuracy": float(weights[answers == targets].sum()) / answered if answered else None,
            }
        )
    return {
        "num_labels": len(scores),
        "num_patients": len(names),
        "accuracy": float(weights[is_right].sum()),
        "rates": rows,
    }
