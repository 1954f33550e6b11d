"""Patch classifier from few patch labels and diagnoses of slides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from histo_monai.finetuning.heads.logistic import Logistic
from histo_monai.finetuning.heads.rows import LinearModel
from histo_monai.finetuning.top_patches import fit_top_patches
from histo_monai.utils.errors import InputError

NEGATIVE, POSITIVE = 0, 1


@dataclass(frozen=True)
class Diagnosed:
    """Patches of diagnosed slides, without the labeled patches.

    Attributes:
        rows: standardized features, Shape (n, D).
        slides: slide of each patch, Shape (n,).
        is_positive: diagnosis of the patch's slide, bool, Shape (n,). All patches of a negative slide are negative.
    """

    rows: NDArray
    slides: NDArray
    is_positive: NDArray[np.bool_]


@dataclass(frozen=True)
class DiagnosesSettings:
    """Settings, selected on simulated lymph nodes with 60 patch labels and 36 diagnoses.

    Attributes:
        prior: fraction of positive patches on positive slides.
        label_weight: weight of the labeled positive patches among all positive ones.
        negative_label_weight: weight of the labeled negative patches among all negative ones.
        strength: inverse L2 penalty.
    """

    prior: float = 0.3
    label_weight: float = 0.5
    negative_label_weight: float = 0.1
    strength: float = 0.01


def fit_diagnoses(
    rows: NDArray, targets: NDArray[np.int64], diagnosed: Diagnosed, settings: DiagnosesSettings | None = None
) -> LinearModel:
    """Logistic regression of labeled patches, all patches of negative slides, and probable ones of positive slides.

    `fit_top_patches` learns from the diagnoses. Its probabilities are the weights of the patches of positive slides as
    positive patches: one step of expectation-maximization. Their negative part is left out, as negative slides have
    many. Both classes have equal weight, so that the boundary is at equal logits.

    Args:
        rows: standardized features of the labeled patches, Shape (n, D).
        targets: 0 or 1, Shape (n,).

    Returns:
        Two logits: negative, positive.

    Raises:
        InputError: a class has no label, or no slide.
    """
    settings = settings or DiagnosesSettings()
    missing = {NEGATIVE, POSITIVE} - set(targets.tolist())
    if missing or diagnosed.is_positive.all() or not diagnosed.is_positive.any():
        raise InputError(
            "diagnoses: a class has no labeled patch, or no slide. Fix: label patches and slides of both classes."
        )
    names = np.unique(diagnosed.slides)
    bags = [diagnosed.rows[diagnosed.slides == name] for name in names]
    labels = np.array([diagnosed.is_positive[diagnosed.slides == name][0] for name in names], np.int64)
    first = fit_top_patches(bags, labels, 2)
    certain, open_rows = (diagnosed.rows[diagnosed.is_positive == kind] for kind in (False, True))
    logits = first.outputs(open_rows)
    probable = expit(logits[:, POSITIVE] - logits[:, NEGATIVE] + logit(settings.prior))
    fractions = np.array([settings.negative_label_weight, settings.label_weight])
    weights = np.concatenate(
        [
            (fractions / np.bincount(targets))[targets],
            np.full(len(certain), (1 - fractions[NEGATIVE]) / len(certain)),
            probable * (1 - fractions[POSITIVE]) / probable.sum(),
        ]
    )
    weights *= len(targets) / 2
    every = np.concatenate([rows, certain, open_rows])
    of_rows = np.concatenate([targets, np.zeros(len(certain), np.int64), np.ones(len(open_rows), np.int64)])
    return Logistic.fit(every, of_rows, 2, weights, [settings.strength])[0]
