"""Patient folds, and label permutations between patients."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedKFold

from histo_monai.evaluation.metrics import checks
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import derive_seed

Integers = NDArray[np.int64]


def patient_numbers(groups: ArrayLike | None, num_slides: int) -> Integers:
    """Patient number of each slide, in order of first appearance.

    Args:
        groups: (n,), ids; None: one slide per patient.
        num_slides: n.

    Raises:
        ValueError: wrong shape, or a missing id.
    """
    if groups is None:
        return np.arange(num_slides)
    numbered = checks.groups(groups, num_slides)
    _, first = np.unique(numbered, return_index=True)
    return np.argsort(np.argsort(first))[numbered]


def patient_folds(
    positive: Integers, patients: Integers, folds: int, seed: int
) -> list[tuple[Integers, Integers]]:
    """Training and held-out slides of each patient fold, both classes in each.

    Patients are stratified by class; a patient with both classes counts for the rarer one.

    Args:
        positive: (n,), 0 or 1.
        patients: (n,), 0..G-1.
        folds: maximum; at most the number of patients of the rarer class.

    Returns:
        Empty if a class has fewer than two patients.

    Raises:
        InputError: `folds` is below two.
    """
    if folds < 2:
        raise InputError(f"folds: {folds} is below 2. Fix: give at least 2")
    kinds = _kinds(positive, patients)
    num_folds = min(folds, *np.bincount(kinds, minlength=2))
    if num_folds < 2:
        return []
    folding = StratifiedKFold(num_folds, shuffle=True, random_state=derive_seed(seed, "folds"))
    is_held_out = (np.isin(patients, of_fold) for _, of_fold in folding.split(kinds, kinds))
    return [(np.flatnonzero(~held_out), np.flatnonzero(held_out)) for held_out in is_held_out]


def shuffled_between_patients(labels: Integers, patients: Integers, random: np.random.Generator) -> Integers:
    """Slide labels, permuted in blocks of patients.

    Patients are shuffled; their labels, in that order, are assigned to the slides patient by patient. Correlation
    within patients and the number of slides per class do not change. With unequal numbers of slides, a patient may
    receive labels of two.

    Args:
        labels: (n,).
        patients: (n,), 0..G-1.
    """
    slides_of = [np.flatnonzero(patients == number) for number in range(patients.max() + 1)]
    shuffled = [labels[slides_of[number]] for number in random.permutation(len(slides_of))]
    moved = np.empty_like(labels)
    moved[np.concatenate(slides_of)] = np.concatenate(shuffled)
    return moved


def _kinds(positive: Integers, patients: Integers) -> Integers:
    """Class of each patient for stratification, (G,)."""
    holds = np.zeros((patients.max() + 1, 2), bool)
    holds[patients, positive] = True
    kinds = holds[:, 1].astype(np.int64)
    is_mixed = holds.all(axis=1)
    counts = np.bincount(kinds[~is_mixed], minlength=2)
    for number in np.flatnonzero(is_mixed):
        kinds[number] = counts[1] <= counts[0]
        counts[kinds[number]] += 1
    return kinds
