"""Self-training with a safeguard: pseudo labels are used only if the cross-validated loss falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from histo_monai.finetuning.heads.features import Depths
from histo_monai.finetuning.heads.rows import balanced
from histo_monai.finetuning.heads.selected import SelectedHead
from histo_monai.finetuning.heads.selection import Labels, clustered_error, patient_folds, select_head
from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.utils.errors import InputError

PseudoLabels = Callable[[NDArray], NDArray]
"""Probabilities of unlabeled patches, Shape (N, K) -> propagated or balanced ones, Shape (N, K)."""


@dataclass(frozen=True)
class Unlabeled:
    """Training patches without a label in the budget, any number.

    Attributes:
        features: of every depth, Shape (N, D_k).
        patients: of each patch, Shape (N,).
    """

    features: Depths
    patients: NDArray

    def without(self, patients: NDArray) -> Unlabeled:
        """Patches of other patients."""
        rest = ~np.isin(self.patients, patients)
        return Unlabeled({name: rows[rest] for name, rows in self.features.items()}, self.patients[rest])

    def beside(self, features: Depths) -> Depths:
        """Features of labeled rows, then of the unlabeled patches."""
        return {name: np.concatenate([rows, self.features[name]]) for name, rows in features.items()}


@dataclass(frozen=True)
class HeadData:
    """Training data of a head.

    Attributes:
        features: of the labeled rows.
        labels: labels of these rows.
        unlabeled: all training patches without a label in the budget.
        settings: comparison of heads inside the label budget.
        seed: seed of the patient folds.
    """

    features: Depths
    labels: Labels
    unlabeled: Unlabeled
    settings: SelectionSettings
    seed: int


@dataclass(frozen=True)
class SelfTrained:
    """A head, and whether it was trained on pseudo labels.

    Attributes:
        head: trained on pseudo labels too if `is_accepted`, else on labels only.
        is_accepted: whether the cross-validated loss fell by more than one standard error over patients.
        gain: loss without minus loss with pseudo labels; NaN if the labels cannot be cross-validated.
        num_pseudo_labels: number of pseudo labels in the fit with all labels.
    """

    head: SelectedHead
    is_accepted: bool
    gain: float
    num_pseudo_labels: int


def self_train(
    data: HeadData,
    *,
    weight: float,
    threshold: float,
    change: Callable[[Depths], PseudoLabels | None] | None = None,
) -> SelfTrained:
    """Head fitted to labels and pseudo labels, accepted only if the cross-validated loss falls.

    Each fold fits two heads without its patients: the first on labels only, the second also on the first's pseudo
    labels. So no head predicts a label after training on it, on a pseudo label derived from it, or on its patient.

    Args:
        data: labels are classes. Selection runs once per fold and once on all labels, without pseudo labels. With
            pseudo labels the selected parts are fitted again, with unchanged temperatures and weights.
        weight: sum of the weights of all pseudo labels relative to the sum of the labels' weights.
        threshold: patches with a lower largest probability have no pseudo label.
        change: features of unlabeled patches -> change of their probabilities before the threshold.

    Raises:
        InputError: labels are scores.
    """
    features, labels, settings, seed = data.features, data.labels, data.settings, data.seed
    if labels.num_classes is None:
        raise InputError(
            "self_training: scores have no pseudo labels. Fix: set semisupervised_methods: [supervised]"
        )

    def both(rows: Depths, given: Labels, others: Unlabeled) -> tuple[SelectedHead, SelectedHead, int]:
        """Head without and with pseudo labels, and their number."""
        plain = select_head(rows, given, others.beside(rows), settings, seed)
        if not len(others.patients):
            return plain, plain, 0
        probabilities = plain.predict(others.features)
        changed = change(others.features) if change else None
        probabilities = changed(probabilities) if changed else probabilities
        chosen = np.flatnonzero(probabilities.max(axis=1) >= threshold)
        if not len(chosen):
            return plain, plain, 0
        every = {name: np.concatenate([own, others.features[name][chosen]]) for name, own in rows.items()}
        targets = np.concatenate([given.targets, probabilities[chosen].argmax(axis=1)])
        of_pseudo = np.full(len(chosen), weight * len(given.targets) / len(chosen))
        counts = np.concatenate([np.ones(len(given.targets)), of_pseudo])
        return plain, plain.fitted_again(every, targets, counts), len(chosen)

    plain, trained, number = both(features, labels, data.unlabeled)
    fold_of, why_none = patient_folds(labels, settings.num_folds, seed)
    if why_none or not number:
        return SelfTrained(plain, False, float("nan"), number)
    losses = np.empty((2, len(fold_of)))
    for fold in np.unique(fold_of):
        learning, held_out = fold_of != fold, fold_of == fold
        rows = {name: x[learning] for name, x in features.items()}
        given = Labels(labels.targets[learning], labels.patients[learning], labels.num_classes)
        heads = both(rows, given, data.unlabeled.without(labels.patients[held_out]))[:2]
        tested = {name: x[held_out] for name, x in features.items()}
        for losses_of_head, head in zip(losses, heads, strict=True):
            probabilities = head.predict(tested)[np.arange(int(held_out.sum())), labels.targets[held_out]]
            losses_of_head[held_out] = -np.log(np.maximum(probabilities, 1e-12))
    fall = losses[0] - losses[1]
    known = np.unique(labels.targets, return_inverse=True)[1]
    counted = balanced(known, np.ones(len(known)))
    gain = float(np.average(fall, weights=counted))
    is_accepted = gain > clustered_error(fall, labels.patients, counted)
    return SelfTrained(trained if is_accepted else plain, is_accepted, gain, number)


def labels_alone(data: HeadData) -> SelfTrained:
    """A head without pseudo labels; unlabeled patches only standardize features."""
    every = data.unlabeled.beside(data.features)
    head = select_head(data.features, data.labels, every, data.settings, data.seed)
    return SelfTrained(head, False, float("nan"), 0)
