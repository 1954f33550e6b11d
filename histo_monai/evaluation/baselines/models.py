"""Fast baselines: models of seconds, trained on the network's labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COLOR_MEAN, COLOR = "color_mean", "color"
ENCODER_LINEAR, ENCODER_KNN = "encoder_linear", "encoder_knn"
STACKED = "stacked"
MAJORITY = "majority"
"""Constant prediction of the labels' class proportions; reported beside every accuracy, not in `BASELINES`."""
ENCODER = "encoder"
"""Features of the pretrained encoder before fine-tuning, at the depth that the labels select."""


@dataclass(frozen=True)
class Baseline:
    """Candidates of a baseline, for cross-validation on the labels.

    Attributes:
        features: names, of `evaluation.baselines.colors` or `ENCODER`.
        learners: names in `finetuning.learners.LEARNERS`.
    """

    features: tuple[str, ...]
    learners: tuple[str, ...]


LEARNED: dict[str, Baseline] = {
    COLOR_MEAN: Baseline(("mean_color",), ("linear",)),
    COLOR: Baseline(
        ("color_histogram", "stain_histograms", "color_and_stain_histograms"), ("linear", "forest")
    ),
    ENCODER_LINEAR: Baseline((ENCODER,), ("linear",)),
    ENCODER_KNN: Baseline((ENCODER,), ("neighbors",)),
}
"""Trained baselines. Mean color is the literature's floor; every network is compared with `COLOR`."""

BASELINES = (*LEARNED, STACKED)
"""Baselines, as named in predictions.csv."""

FLOOR = 1e-3
"""Smallest probability before stacking, so that the 0 of a forest does not overrule the network."""


def stacked(student: NDArray, color: NDArray, *, are_classes: bool) -> NDArray:
    """Combination of network and color: mean of log odds, or of scores.

    Nothing is fitted, so no label is used twice, and overfitted training predictions have no effect. For K classes:
    p ∝ sqrt(p_student p_color), no probability below `FLOOR`.

    Args:
        student: Shape (n, K), class probabilities, or (n, 1), scores.
        are_classes: whether predictions are probabilities.

    Returns:
        Shape (n, K).
    """
    if not are_classes:
        return (student + color) / 2
    product = np.sqrt(np.maximum(student, FLOOR) * np.maximum(color, FLOOR))
    return product / product.sum(axis=1, keepdims=True)
