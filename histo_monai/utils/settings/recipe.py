"""Settings of trainings of a whole network, counted in optimizer steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from histo_monai.utils.settings.rules import ByName, Count, CountOrZero, Fraction, Positive, Range, Unique

LabelKind = Literal["two_classes", "many_classes", "scores"]
"""Kind of labels; recipe values may differ between two classes, many classes and scores."""
LABEL_KINDS: tuple[LabelKind, ...] = get_args(LabelKind)

FractionByKind = Annotated[float | Mapping[str, float], ByName(Fraction, LABEL_KINDS)]
"""0..1, one value or one per label kind."""


def label_kind(classes: Sequence[str] | None) -> LabelKind:
    """Label kind of a task with these classes; None: scores. A single class counts as two."""
    if classes is None:
        return "scores"
    return "many_classes" if len(classes) > 2 else "two_classes"


def warmup_cosine(warmup: float | None, *, step: int, num_steps: int) -> float:
    """Learning rate of a step, relative to the highest: linear rise, then cosine decay towards 0.

    Args:
        warmup: fraction of the steps with a rising rate; None: a constant rate of 1.
        step: from 1.
    """
    if warmup is None:
        return 1.0
    rising = warmup * num_steps
    if step < rising:
        return step / rising
    return (1 + math.cos(math.pi * (step - rising) / (num_steps + 1 - rising))) / 2


@dataclass(frozen=True)
class Recipe:
    """Settings of AdamW with linear warmup and cosine decay; the average of the weights predicts.

    Attributes:
        epochs: Number of epochs; each ends with validation.
        steps_per_epoch: Optimizer steps, independent of the number of labels.
        batch_size: Labeled images per step.
        lr: Peak learning rate of the head.
        backbone_lr_factor: Learning rate of the trunk divided by the head's; 0: only batch-norm statistics change.
        warmup: Fraction of all steps with a rising rate.
        ema_decay: Decay of the average of weights; 0: the last weights predict.
        unaugmented_fraction: Fraction of labeled views without augmentation, as in prediction, 0..1.
        stain_jitter: Largest stain change of the other views (`transforms.supervised.stains`); 0: geometry alone.
    """

    epochs: Count
    steps_per_epoch: Count
    batch_size: Count
    lr: Positive
    backbone_lr_factor: Annotated[float, Range(0.0, 10.0)]
    weight_decay: Annotated[float, Range(0.0)]
    warmup: Fraction
    ema_decay: Annotated[float, Range(0.0, 0.9999)]
    unaugmented_fraction: Fraction
    stain_jitter: Fraction


@dataclass(frozen=True)
class TeachingRecipe(Recipe):
    """Recipe of semi-supervised methods.

    Attributes:
        batchnorm_patches: Unaugmented training patches for the final batch-norm statistics, without their labels; 0:
            statistics of the training.
        match_class_proportions: Give the student the teacher's class proportions, or the teacher's mean and spread of
            scores, on `batchnorm_patches` (`semisupervised.teaching.class_proportions`).
        interpolation_weights: Weights of the initial model in the student, 0..1; of several, held-out labels select one
            (`training.interpolation`).
    """

    batchnorm_patches: CountOrZero
    match_class_proportions: bool
    interpolation_weights: Annotated[tuple[Fraction, ...], Unique()]
