"""Slides that belong together: folds that keep patients apart, and labels that move from patient to patient."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedKFold

from histo_monai.evaluation.metrics import checks
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import derive_seed

Integers = NDArray[np.int64]


def patient_numbers(groups: ArrayLike | None, num_slides: int) -> Integers:
    """Number of the patient of each slide, in order of appearance.

    Args:
        groups: Shape (n,), any kind of id; None: each slide is a patient of its own.
        num_slides: n.

    Raises:
        ValueError: The shape is another, or an id is missing.
    """
    if groups is None:
        return np.arange(num_slides)
    numbered = checks.groups(groups, num_slides)
    _, first = np.unique(numbered, return_index=True)
    return np.argsort(np.argsort(first))[numbered]


def patient_folds(
    positive: Integers, patients: Integers, folds: int, seed: int
) -> list[tuple[Integers, Integers]]:
    """Slides to learn from and slides to hold out, for each fold of patients; both classes are in each of them.

    Patients are stratified by class. A patient with slides of both classes counts as the class of fewer patients.

    Args:
        positive: Shape (n,), 0 or 1.
        patients: Shape (n,), 0..G-1.
        folds: at most; never more than the rarer class has patients.

    Returns:
        Empty where a class has fewer than two patients.

    Raises:
        InputError: `folds` is below two.
    """
    if folds < 2:
        raise InputError(f"{folds} folds; a cross-validation takes two at least")
    kinds = _kinds(positive, patients)
    num_folds = min(folds, *np.bincount(kinds, minlength=2))
    if num_folds < 2:
        return []
    folding = StratifiedKFold(num_folds, shuffle=True, random_state=derive_seed(seed, "folds"))
    is_held_out = (np.isin(patients, of_fold) for _, of_fold in folding.split(kinds, kinds))
    return [(np.flatnonzero(~held_out), np.flatnonzero(held_out)) for held_out in is_held_out]


def shuffled_between_patients(labels: Integers, patients: Integers, random: np.random.Generator) -> Integers:
    """Labels of slides, moved in whole patients.

    The patients are shuffled, and their labels, in that order, are dealt to the slides, patient after patient. Slides
    of a patient keep their resemblance, and each class keeps its number of slides. Where patients differ in the number
    of slides, a patient may get labels of two.

    Args:
        labels: Shape (n,).
        patients: Shape (n,), 0..G-1.
    """
    slides_of = [np.flatnonzero(patients == number) for number in range(patients.max() + 1)]
    shuffled = [labels[slides_of[number]] for number in random.permutation(len(slides_of))]
    moved = np.empty_like(labels)
    moved[np.concatenate(slides_of)] = np.concatenate(shuffled)
    return moved


def _kinds(positive: Integers, patients: Integers) -> Integers:
    """Class that each patient counts as, shape (G,)."""
    holds = np.zeros((patients.max() + 1, 2), bool)
    holds[patients, positive] = True
    kinds = holds[:, 1].astype(np.int64)
    is_mixed = holds.all(axis=1)
    counts = np.bincount(kinds[~is_mixed], minlength=2)
    for number in np.flatnonzero(is_mixed):
        kinds[number] = counts[1] <= counts[0]
        counts[kinds[number]] += 1
    return kinds
