"""What params can set of a training of a whole network that is counted in steps of its optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from histo_monai.utils.settings.rules import ByName, Count, CountOrZero, Fraction, Positive, Range, Unique

LabelKind = Literal["two_classes", "many_classes", "scores"]
"""What is learned. Values of a recipe may differ by kind: two classes, nine and scores need others."""
LABEL_KINDS: tuple[LabelKind, ...] = get_args(LabelKind)

FractionByKind = Annotated[float | Mapping[str, float], ByName(Fraction, LABEL_KINDS)]
"""0..1 for all kinds of labels, or for each."""


def label_kind(classes: Sequence[str] | None) -> LabelKind:
    """That of a task with these classes; None: scores. A single class counts as two, of which one is unseen."""
    if classes is None:
        return "scores"
    return "many_classes" if len(classes) > 2 else "two_classes"


@dataclass(frozen=True)
class Recipe:
    """AdamW, its rate up a line and down a cosine; the average of the weights predicts.

    Attributes:
        epochs: after each of which is validated and noted.
        steps_per_epoch: of the optimizer, however many labels there are.
        batch_size: labeled images of a step.
        lr: learning rate of the head, at its highest.
        backbone_lr_factor: that of the trunk, in parts of the head's; at 0 only its batch-norm statistics move.
        weight_decay: of AdamW.
        warmup: part of all steps in which the rate rises.
        ema_decay: of the average of weights; 0: the last weights predict.
        unaugmented_fraction: labeled views that are not augmented, 0..1: what is predicted later is not augmented
            either.
        stain_jitter: largest change of the stains of the others, see `transforms.supervised.stains`; 0: geometry alone.
        batchnorm_patches: training patches, not augmented, whose labels are not looked at, that the statistics of
            batch-norms are taken from at the end; 0: those that training met stay.
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
    batchnorm_patches: CountOrZero


@dataclass(frozen=True)
class TeachingRecipe(Recipe):
    """As `Recipe`, of students.

    Attributes:
        match_class_proportions: the student calls as many of the patches of `batchnorm_patches` each class as the model
            that it came from, or its scores have the same mean and spread; see
            `semisupervised.teaching.class_proportions`.
        interpolation_weights: weights of the model that it came from in the student's own, 0..1; of several, held-out
            labels select one, see `training.interpolation`.
    """

    match_class_proportions: bool
    interpolation_weights: Annotated[tuple[Fraction, ...], Unique()]
