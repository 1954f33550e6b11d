"""Heads of labels and unlabeled patches, with a safeguard: the cross-validated loss decides on the patches' use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from histo_monai.finetuning.heads.calibration import log_losses, temperature_of
from histo_monai.finetuning.heads.features import Depths
from histo_monai.finetuning.heads.rows import balanced
from histo_monai.finetuning.heads.selected import SelectedHead
from histo_monai.finetuning.heads.selection import Labels, clustered_error, patient_folds, select_head
from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.utils.errors import InputError

PseudoLabels = Callable[[NDArray], NDArray]
"""Probabilities of unlabeled patches, Shape (N, K) -> propagated or balanced ones, Shape (N, K)."""


NO_DIAGNOSIS, NEGATIVE, POSITIVE = -1, 0, 1
"""Kinds of slides."""


@dataclass(frozen=True)
class SlideKinds:
    """Diagnoses of the slides that patches are on.

    Attributes:
        slides: slide of each patch, Shape (N,).
        kinds: `POSITIVE`, `NEGATIVE` or `NO_DIAGNOSIS`, Shape (N,). A positive slide has patches of the positive class.
        positive: number of this class.
    """

    slides: NDArray
    kinds: NDArray[np.int64]
    positive: int


@dataclass(frozen=True)
class Unlabeled:
    """Training patches without a label in the budget, any number.

    Attributes:
        features: of every depth, Shape (N, D_k).
        patients: of each patch, Shape (N,).
        diagnoses: of each patch's slide; None: none are known.
    """

    features: Depths
    patients: NDArray
    diagnoses: SlideKinds | None = None

    def without(self, patients: NDArray) -> Unlabeled:
        """Patches of other patients."""
        rest, some = ~np.isin(self.patients, patients), self.diagnoses
        if some is not None:
            some = SlideKinds(some.slides[rest], some.kinds[rest], some.positive)
        return Unlabeled(
            {name: rows[rest] for name, rows in self.features.items()}, self.patients[rest], some
        )

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
    """A head, and whether it was trained on unlabeled patches.

    Attributes:
        head: trained on pseudo labels, or on diagnoses, too if `is_accepted`, else on labels only.
        is_accepted: whether the safeguard accepted them.
        gain: cross-validated loss without minus loss with them; NaN if the labels cannot be cross-validated.
        num_pseudo_labels: number of unlabeled patches in the fit with all labels.
    """

    head: SelectedHead
    is_accepted: bool
    gain: float
    num_pseudo_labels: int


Fit = Callable[[Depths, Labels, Unlabeled], tuple[SelectedHead, SelectedHead, int]]
"""Labeled rows and unlabeled patches -> head of the labels, head of both, and number of unlabeled patches in it."""


def safeguarded(data: HeadData, fit: Fit, *, unless_worse: bool = False) -> SelfTrained:
    """Head with unlabeled patches, accepted only if the cross-validated loss falls by more than one standard error.

    Each fold fits both heads without its patients. The standard error is over patients.

    Args:
        unless_worse: accept the head unless the loss rises by more than one standard error, and if the labels cannot be
            cross-validated. The head is new, so that its temperature is that of the lowest cross-validated loss.
    """
    labels_only, trained, number = fit(data.features, data.labels, data.unlabeled)
    held_out = _held_out(data, fit) if number else None
    if held_out is None:
        is_accepted = unless_worse and number > 0
        return SelfTrained(trained if is_accepted else labels_only, is_accepted, float("nan"), number)
    targets = data.labels.targets
    known = np.unique(targets, return_inverse=True)[1]
    counted = balanced(known, np.ones(len(known)))
    temperature = temperature_of(held_out[1], targets, counted) if unless_worse else 1.0
    fall = log_losses(held_out[0], targets, 1.0) - log_losses(held_out[1], targets, temperature)
    gain = float(np.average(fall, weights=counted))
    error = clustered_error(fall, data.labels.patients, counted)
    is_accepted = gain >= -error if unless_worse else gain > error
    calibrated = [replace(part, temperature=part.temperature * temperature) for part in trained.parts]
    trained = replace(trained, parts=tuple(calibrated))
    return SelfTrained(trained if is_accepted else labels_only, is_accepted, gain, number)


def _held_out(data: HeadData, fit: Fit) -> NDArray[np.float64] | None:
    """Log-probabilities by the head of the labels and by the other one, Shape (2, n, K); None without folds."""
    labels = data.labels
    fold_of, why_none = patient_folds(labels, data.settings.num_folds, data.seed)
    if why_none:
        return None
    probabilities = np.empty((2, len(fold_of), labels.num_classes or 1))
    for fold in np.unique(fold_of):
        learning, held_out = fold_of != fold, fold_of == fold
        rows = {name: x[learning] for name, x in data.features.items()}
        given = Labels(labels.targets[learning], labels.patients[learning], labels.num_classes)
        heads = fit(rows, given, data.unlabeled.without(labels.patients[held_out]))[:2]
        tested = {name: x[held_out] for name, x in data.features.items()}
        for of_head, head in zip(probabilities, heads, strict=True):
            of_head[held_out] = head.predict(tested)
    return np.log(np.maximum(probabilities, 1e-12))


def self_train(
    data: HeadData,
    *,
    weight: float,
    threshold: float,
    change: Callable[[Depths], PseudoLabels | None] | None = None,
) -> SelfTrained:
    """Head fitted to labels and pseudo labels, with the safeguard of `safeguarded`.

    In each fold the first head's pseudo labels train the second. So no head predicts a label after training on it, on a
    pseudo label derived from it, or on its patient.

    Args:
        data: labels are classes. Selection runs once per fold and once on all labels, without pseudo labels. With
            pseudo labels the selected parts are fitted again, with unchanged temperatures and weights.
        weight: sum of the weights of all pseudo labels relative to the sum of the labels' weights.
        threshold: patches with a lower largest probability have no pseudo label.
        change: features of unlabeled patches -> change of their probabilities before the threshold.

    Raises:
        InputError: labels are scores.
    """
    if data.labels.num_classes is None:
        raise InputError(
            "self_training: scores have no pseudo labels. Fix: set semisupervised_methods: [supervised]"
        )

    def both(rows: Depths, given: Labels, others: Unlabeled) -> tuple[SelectedHead, SelectedHead, int]:
        """Head without and with pseudo labels, and their number."""
        labels_only = select_head(rows, given, others.beside(rows), data.settings, data.seed)
        if not len(others.patients):
            return labels_only, labels_only, 0
        probabilities = labels_only.predict(others.features)
        changed = change(others.features) if change else None
        probabilities = changed(probabilities) if changed else probabilities
        chosen = np.flatnonzero(probabilities.max(axis=1) >= threshold)
        if not len(chosen):
            return labels_only, labels_only, 0
        every = {name: np.concatenate([own, others.features[name][chosen]]) for name, own in rows.items()}
        targets = np.concatenate([given.targets, probabilities[chosen].argmax(axis=1)])
        of_pseudo = np.full(len(chosen), weight * len(given.targets) / len(chosen))
        counts = np.concatenate([np.ones(len(given.targets)), of_pseudo])
        return labels_only, labels_only.fitted_again(every, targets, counts), len(chosen)

    return safeguarded(data, both)


def labels_alone(data: HeadData) -> SelfTrained:
    """A head without pseudo labels; unlabeled patches only standardize features."""
    every = data.unlabeled.beside(data.features)
    head = select_head(data.features, data.labels, every, data.settings, data.seed)
    return SelfTrained(head, False, float("nan"), 0)
