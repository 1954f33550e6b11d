"""Self-training with a safeguard: pseudo labels are used only where the cross-validated loss falls."""

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

PseudoLabels = Callable[[NDArray], NDArray]
"""Probabilities of unlabeled patches, Shape (N, K) -> propagated or balanced ones, Shape (N, K)."""


@dataclass(frozen=True)
class SelfTrained:
    """A head, and whether pseudo labels are in it.

    Attributes:
        head: with pseudo labels where they are accepted, else without.
        is_accepted: whether the cross-validated loss fell by more than one standard error over patients.
        gain: loss without minus loss with pseudo labels; NaN where the labels cannot be cross-validated.
        num_pseudo_labels: patches with a pseudo label at which all labels arrive.
    """

    head: SelectedHead
    is_accepted: bool
    gain: float
    num_pseudo_labels: int


def self_train(
    features: Depths,
    labels: Labels,
    unlabeled: Depths,
    settings: SelectionSettings,
    seed: int,
    *,
    weight: float,
    threshold: float,
    change: PseudoLabels | None = None,
) -> SelfTrained:
    """Fit a head to labels and pseudo labels; accept it only where the cross-validated loss falls.

    Each fold fits both heads without its patients' labels: the one without pseudo labels gives them for the other, of
    all unlabeled patches. So no label is predicted by a head that learned from it, nor from a pseudo label made of it.

    Args:
        features: of the labeled rows.
        labels: classes of the same rows.
        unlabeled: of all training patches without a label in the budget; may be empty.
        settings: of the selection, which runs once without pseudo labels in each fold and once on all labels; with
            pseudo labels its parts are fitted again, their temperatures and weights unchanged.
        seed: deals patients into folds.
        weight: sum of the weights of all pseudo labels relative to the sum of the labels' weights.
        threshold: patches with a lower largest probability have no pseudo label.
        change: of the probabilities before the threshold.

    Raises:
        ValueError: labels are scores.
    """
    if labels.num_classes is None:
        raise ValueError("self-training: scores have no pseudo labels")

    num_unlabeled = len(next(iter(unlabeled.values())))

    def with_pseudo_labels(head: SelectedHead, rows: Depths, given: Labels) -> tuple[SelectedHead, int]:
        if not num_unlabeled:
            return head, 0
        probabilities = head.predict(unlabeled)
        probabilities = probabilities if change is None else change(probabilities)
        chosen = np.flatnonzero(probabilities.max(axis=1) >= threshold)
        if not len(chosen):
            return head, 0
        both = {name: np.concatenate([rows[name], unlabeled[name][chosen]]) for name in rows}
        targets = np.concatenate([given.targets, probabilities[chosen].argmax(axis=1)])
        of_pseudo = np.full(len(chosen), weight * len(given.targets) / len(chosen))
        counts = np.concatenate([np.ones(len(given.targets)), of_pseudo])
        return head.fitted_again(both, targets, counts), len(chosen)

    every = {name: np.concatenate([rows, unlabeled[name]]) for name, rows in features.items()}
    plain = select_head(features, labels, every, settings, seed)
    trained, number = with_pseudo_labels(plain, features, labels)
    fold_of, why_none = patient_folds(labels, settings.num_folds, seed)
    if why_none or not number:
        return SelfTrained(plain, False, float("nan"), number)
    losses = np.empty((2, len(fold_of)))
    for fold in np.unique(fold_of):
        learning, held_out = fold_of != fold, fold_of == fold
        rows = {name: x[learning] for name, x in features.items()}
        given = Labels(labels.targets[learning], labels.patients[learning], labels.num_classes)
        without = select_head(rows, given, every, settings, seed)
        others = {name: x[held_out] for name, x in features.items()}
        for number_, head in enumerate((without, with_pseudo_labels(without, rows, given)[0])):
            probabilities = head.predict(others)[np.arange(int(held_out.sum())), labels.targets[held_out]]
            losses[number_, held_out] = -np.log(np.maximum(probabilities, 1e-12))
    fall = losses[0] - losses[1]
    known = np.unique(labels.targets, return_inverse=True)[1]
    counted = balanced(known, np.ones(len(known)))
    gain = float(np.average(fall, weights=counted))
    is_accepted = gain > clustered_error(fall, labels.patients, counted)
    return SelfTrained(trained if is_accepted else plain, is_accepted, gain, number)
