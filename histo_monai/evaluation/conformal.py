"""Sets of classes for an error rate, from held-out predictions of the labels; without a single class a model abstains.

Split-conformal prediction (Vovk, Gammerman & Shafer 2005) with scores by cross-validation, as in CV+ (Barber et al.
2021). Every patient counts the same (Dunn, Wasserman & Ramdas 2022), as patches of a patient are alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.tasks import grouping_key
from histo_monai.evaluation.cross_validation import CrossValidated
from histo_monai.models.checkpoint import read_description
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage.shapes import COUNT

CONFORMAL = "conformal"
"""Key of a model's description."""

RATES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
"""Error rates that a model's file has a threshold for."""
SHOWN = (0.05, 0.1, 0.2)
"""Error rates of summaries."""
NONE = -1
"""As a class number: no answer."""
_ROUNDING = 1e-9
_ROW = {"rate": float, "threshold": float, "coverage": float, "answered": float, "accuracy": (float, None)}
_SHAPE = {f"{CONFORMAL}?": {"num_labels": COUNT, "num_patients": COUNT, "accuracy": float, "rates": [_ROW]}}


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


def calibration(
    labeled: pd.DataFrame, validated: CrossValidated[Any, Any] | None, classes: Sequence[str] | None
) -> dict[str, Any]:
    """Part of a model's description: thresholds, and what they gave on labels of left-out patients.

    Every patient counts the same. A patient's sets have the threshold of the other patients. Coverage is the fraction
    of labels in their set. Empty for scores and without cross-validation.

    Args:
        labeled: rows with a label.
        validated: has probabilities by models without the row's patient.
        classes: names of the K classes; None for scores.
    """
    if validated is None or classes is None:
        return {}
    predictions = validated.predictions
    targets = pd.Index(classes).get_indexer(pd.Index(labeled["label"])).astype(np.int64)
    patients = grouping_key(labeled).to_numpy(str)
    scores, weights = label_scores(predictions, targets), patient_weights(patients)
    without, names = np.empty((len(scores), len(RATES))), np.unique(patients)
    for name in names:
        others = patients != name
        without[~others] = thresholds(scores[others], patients[others], RATES)
    rows = []
    for rate, threshold, limits in zip(RATES, thresholds(scores, patients, RATES), without.T, strict=True):
        answers = single_answers(predictions, limits[:, None])
        answered = float(weights[answers != NONE].sum())
        accuracy = float(weights[answers == targets].sum()) / answered if answered else None
        coverage = float(weights[scores <= limits + _ROUNDING].sum())
        values = (rate, threshold, coverage, answered, accuracy)
        rows.append(dict(zip(_ROW, values, strict=True)))
    accuracy = float(weights[np.argmax(predictions, axis=1) == targets].sum())
    counts = {"num_labels": len(scores), "num_patients": len(names)}
    return {CONFORMAL: {**counts, "accuracy": accuracy, "rates": rows}}


def read_calibration(path: Path) -> dict[str, Any] | None:
    """`calibration` in the description of a model's file; None if it has none.

    Raises:
        InputError: the description is missing or malformed.
    """
    content: dict[str, Any] | None = read_description(path.with_suffix(".json"), _SHAPE).get(CONFORMAL)
    return content


@dataclass(frozen=True)
class Abstention:
    """Error rate of a model at which patches without a single class have no class.

    Attributes:
        error_rate: one of `RATES`.
        threshold: a class is in the set if 1 minus its probability is at most this.
        coverage: fraction of the labels of left-out patients in their set.
        accuracy: of their sets of one class; None: there was none.
        num_labels: number of labels behind the threshold.
        num_patients: number of their patients.
        classes: of the model.
    """

    error_rate: float
    threshold: float
    coverage: float
    accuracy: float | None
    num_labels: int
    num_patients: int
    classes: list[str]

    @classmethod
    def read(cls, path: Path, rate: float, mapped: Sequence[str]) -> Self:
        """Abstention of a model's file.

        Args:
            mapped: classes whose probabilities are known.

        Raises:
            InputError: the model has no thresholds or not this one, or probabilities of its classes are unknown.
        """
        classes = read_description(path.with_suffix(".json"))["classes"]
        if not classes:
            raise InputError(f"--abstain: {path} outputs a score. Fix: map it without --abstain")
        content = read_calibration(path)
        if content is None:
            raise InputError(
                f"--abstain: {path} has no cross-validated labels. Fix: label patches of more patients, and run "
                "finetune again without separate validation patches"
            )
        rows = {row["rate"]: row for row in content["rates"]}
        if rate not in rows:
            raise InputError(
                f"--abstain: no error rate {rate:g}. Fix: give one of {', '.join(map(str, rows))}"
            )
        if len(mapped) < len(classes) - (len(classes) == 2):
            raise InputError(
                "--abstain: needs the probabilities of all classes. Fix: leave out --positive-class"
            )
        counts = {name: content[name] for name in ("num_labels", "num_patients")}
        of_rate = {name: rows[rate][name] for name in ("threshold", "coverage", "accuracy")}
        return cls(error_rate=rate, classes=classes, **counts, **of_rate)

    def answers(self, probabilities: Mapping[str, NDArray]) -> NDArray[np.str_]:
        """Class of each patch, empty where its set is not one class; Shape (n,).

        Args:
            probabilities: class -> Shape (n,); of two classes one suffices.
        """
        one = next(iter(probabilities.values()))
        table = np.stack([probabilities.get(name, 1 - one) for name in self.classes], axis=1)
        numbers = single_answers(table, self.threshold)
        return np.where(numbers == NONE, "", np.array(self.classes)[numbers])
