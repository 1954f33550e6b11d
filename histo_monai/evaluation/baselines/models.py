"""Arms that cost seconds: what learns from the same labels as the network and takes no training of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COLOR_MEAN, COLOR = "color_mean", "color"
ENCODER_LINEAR, ENCODER_KNN = "encoder_linear", "encoder_knn"
STACKED = "stacked"
MAJORITY = "majority"
"""Of classes: how often each is among the labels, whatever the patch shows. Beside every accuracy, and no arm."""
ENCODER = "encoder"
"""Stands for the features of the pretrained encoder, before any fine-tuning, at the end that the labels choose."""


@dataclass(frozen=True)
class Arm:
    """What an arm chooses among, by cross-validation on the labels.

    Attributes:
        features: names, of `evaluation.baselines.colors` or `ENCODER`.
        learners: names in `finetuning.learners.LEARNERS`.
    """

    features: tuple[str, ...]
    learners: tuple[str, ...]


LEARNED: dict[str, Arm] = {
    COLOR_MEAN: Arm(("mean_color",), ("linear",)),
    COLOR: Arm(("color_histogram", "stain_histograms", "color_and_stain_histograms"), ("linear", "forest")),
    ENCODER_LINEAR: Arm((ENCODER,), ("linear",)),
    ENCODER_KNN: Arm((ENCODER,), ("neighbors",)),
}
"""Arms that learn from labels. Mean color is the literature's floor; `COLOR` is what every network has to beat."""

ARMS = (*LEARNED, STACKED)
"""As predictions.csv names them."""

FLOOR = 1e-3
"""Of a probability that is stacked: the 0 of 200 trees is no certainty, and must not overrule the network."""


def stacked(student: NDArray, color: NDArray, *, are_classes: bool) -> NDArray:
    """Network and color together: the mean of their log odds, or of their scores.

    Nothing is fitted: no label is used twice, and neither side can lean on what it has learned by heart. Of K classes
    it is p ∝ sqrt(p_student p_color), no probability below `FLOOR`.

    Args:
        student: Shape (n, K), probabilities of the classes, or (n, 1), scores.
        are_classes: whether they are probabilities.

    Returns:
        Shape (n, K).
    """
    if not are_classes:
        return (student + color) / 2
    product = np.sqrt(np.maximum(student, FLOOR) * np.maximum(color, FLOOR))
    return product / product.sum(axis=1, keepdims=True)
