"""Training and predictions of the fast baselines on the patches of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histo_monai.evaluation.baselines.models import COLOR, ENCODER, LEARNED, MAJORITY, STACKED, stacked
from histo_monai.evaluation.cross_validation import in_order_of_rows
from histo_monai.evaluation.estimates import Predictions
from histo_monai.finetuning.depth import DepthFeatures, choose_depth
from histo_monai.finetuning.learners import Chosen, Features, choose_model
from histo_monai.utils.roles import STUDENT

LABELED = "labeled"
"""Name of the labeled training patches among the splits."""


@dataclass(frozen=True)
class BaselinePredictions:
    """Predictions of the baselines, and their selected models.

    Attributes:
        predictions: by split, of every baseline; for classes also `MAJORITY`.
        chosen: name of a trained baseline -> model selected by cross-validation.
    """

    predictions: dict[str, Predictions]
    chosen: dict[str, Chosen]


def predict_baselines(
    encoded: Mapping[str, DepthFeatures],
    colors: Mapping[str, Features],
    targets: NDArray,
    groups: NDArray,
    num_classes: int | None,
    networks: Mapping[str, Predictions],
    depth: str = "",
) -> BaselinePredictions:
    """Train every baseline on the network's labels, and predict every split.

    Baselines do not use validation patches, whose labels are labels too.

    Args:
        encoded: features of the labeled patches (`LABELED`) and of every split by an encoder as pretrained, or with
            the batch statistics at the start of fine-tuning.
        colors: `colors.color_features` of the same patches.
        targets: class numbers, or scores, of the labeled patches; Shape (n,).
        groups: patient or slide of each labeled patch; Shape (n,).
        num_classes: None for scores.
        networks: by split, predictions of the student among others.
        depth: depth of the fine-tuned encoder, a name in `encoded`; empty: the labels select it.
    """
    by_depth = encoded[LABELED]
    selected_depth = depth or choose_depth(by_depth, targets, groups, num_classes).model.candidate.features
    features = {
        name: {**colors[name], selected_depth: encoded[name][selected_depth]} for name in (LABELED, *networks)
    }
    chosen = {
        name: choose_model(
            features[LABELED],
            targets,
            groups,
            num_classes,
            names=[selected_depth if of == ENCODER else of for of in baseline.features],
            learners=baseline.learners,
        )
        for name, baseline in LEARNED.items()
    }
    predictions: dict[str, Predictions] = {}
    for split, of_networks in networks.items():
        predictions[split] = {name: one.model.predict(features[split]) for name, one in chosen.items()}
        student = of_networks[STUDENT]
        predictions[split][STACKED] = stacked(
            student, predictions[split][COLOR], are_classes=num_classes is not None
        )
        if num_classes is not None:
            predictions[split][MAJORITY] = _proportions(targets, num_classes, len(student))
    return BaselinePredictions(predictions, chosen)


def out_of_folds(
    without_folds: Sequence[BaselinePredictions],
    fold_of: NDArray[np.int64],
    targets: NDArray[Any],
    num_classes: int | None,
) -> Predictions:
    """Predictions of the labeled patches by baselines without their fold, in the order of the patches.

    `MAJORITY` is of all labels: the labels outside a fold have few of the class that the fold has many of.

    Args:
        without_folds: baselines of each fold, with predictions of its patches as the split "validation".
        fold_of: fold of each labeled patch.
        targets: class numbers, or scores, of the labeled patches.
        num_classes: None for scores.
    """
    parts = [each.predictions["validation"] for each in without_folds]
    found = {name: in_order_of_rows(fold_of, [part[name] for part in parts]) for name in parts[0]}
    if num_classes is not None:
        found[MAJORITY] = _proportions(targets, num_classes, len(targets))
    return found


def _proportions(targets: NDArray[Any], num_classes: int, num: int) -> NDArray[np.float64]:
    """Fraction of each class among the labels, for each of `num` patches; Shape (num, num_classes)."""
    return np.tile(np.bincount(targets, minlength=num_classes) / len(targets), (num, 1))
