"""Head of few patch labels and diagnoses of slides, on frozen features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from histo_monai.finetuning.heads.features import Depths, standardizations
from histo_monai.finetuning.heads.logistic import Logistic
from histo_monai.finetuning.heads.rows import LinearModel
from histo_monai.finetuning.heads.selected import Candidate, Part, SelectedHead
from histo_monai.finetuning.heads.selection import Labels, select_head
from histo_monai.finetuning.heads.unlabeled.self_training import (
    NEGATIVE,
    NO_DIAGNOSIS,
    POSITIVE,
    HeadData,
    SelfTrained,
    Unlabeled,
    safeguarded,
)
from histo_monai.finetuning.top_patches import fit_top_patches
from histo_monai.semisupervised.settings import DiagnosesSettings
from histo_monai.utils.errors import InputError

HEAD = "diagnoses"


class Diagnoses:
    """Head fitted to labels and diagnoses, unless this raises the cross-validated loss.

    A diagnosis is a label and no prediction. So the head with diagnoses is accepted unless the loss rises by more than
    one standard error, and also if the labels cannot be cross-validated; its temperature is then 1. Slides of one kind
    alone add nothing.
    """

    Settings: ClassVar[type] = DiagnosesSettings

    @staticmethod
    def fit_head(data: HeadData, settings: DiagnosesSettings) -> SelfTrained:
        """Head, and whether diagnoses are in it (`protocol.HeadTeacher`).

        Raises:
            InputError: the labels are not of two classes, or no diagnosis is known.
        """
        if data.labels.num_classes != 2 or data.unlabeled.diagnoses is None:
            raise InputError(
                "diagnoses: expected two classes of patches and labels of slides. Fix: label slides, or set "
                "semisupervised_methods: [supervised]"
            )

        def both(rows: Depths, given: Labels, others: Unlabeled) -> tuple[SelectedHead, SelectedHead, int]:
            labels_only = select_head(rows, given, others.beside(rows), data.settings, data.seed)
            some = others.diagnoses
            assert some is not None
            if not {NEGATIVE, POSITIVE} <= set(some.kinds.tolist()):
                return labels_only, labels_only, 0
            depth, made = list(standardizations(others.beside(rows), "each").items())[-1]  # the deepest
            known = some.kinds != NO_DIAGNOSIS
            diagnosed = Diagnosed(
                made.of(others.features)[known], some.slides[known], some.kinds[known] == POSITIVE
            )
            is_positive = (given.targets == some.positive).astype(np.int64)
            model = fit_diagnoses(made.of(rows), is_positive, diagnosed, settings)
            if some.positive == 0:
                model = LinearModel(model.weights[::-1], model.biases[::-1])
            part = Part(Candidate(HEAD, settings.strength, depth), made, model, 1.0, 1.0)
            return labels_only, replace(labels_only, parts=(part,)), int(known.sum())

        return safeguarded(data, both, unless_worse=True)


@dataclass(frozen=True)
class Diagnosed:
    """Patches of diagnosed slides, without the labeled patches; slides of both kinds.

    Attributes:
        rows: standardized features, Shape (n, D).
        slides: slide of each patch, Shape (n,).
        is_positive: diagnosis of the patch's slide, bool, Shape (n,). All patches of a negative slide are negative.
    """

    rows: NDArray
    slides: NDArray
    is_positive: NDArray[np.bool_]


def fit_diagnoses(
    rows: NDArray, targets: NDArray[np.int64], diagnosed: Diagnosed, settings: DiagnosesSettings
) -> LinearModel:
    """Logistic regression of labeled patches, all patches of negative slides, and probable ones of positive slides.

    `fit_top_patches` learns from the diagnoses. Its probabilities are the weights of the patches of positive slides as
    positive patches: one step of expectation-maximization. Their negative part is left out, as negative slides have
    many. Both classes have equal weight, so that the boundary is at equal logits.

    Args:
        rows: standardized features of the labeled patches, Shape (n, D).
        targets: 0 or 1, both, Shape (n,).

    Returns:
        Two logits: negative, positive.
    """
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
