"""How many wrong labels stand in the first list of doubtful ones: labels of a known dataset, some of them changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from histo_monai.data.tables.tasks import dependence_groups
from histo_monai.evaluation.doubtful import Doubts, nearest_rows
from histo_monai.finetuning.class_means import standardized
from histo_monai.finetuning.heads.selection import Labels, patient_folds, select_head
from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.utils.randomness import derive_seed, generator

from .features import Features, Source
from .tasks import RealTask, read_patches, split_rows, targets_of

RATES = (0.05, 0.1, 0.2)
ONE_PATIENT = 0.0
"""As a rate: all labels of one class and patient are changed."""
FEWEST_PATIENTS, FEWEST_LABELS = 3, 5
"""Of a class and of a patient's class whose labels are all changed."""
LISTED = 50
"""Rows of the first list."""


class Case(NamedTuple):
    """Labels with errors, and what contradicts them.

    Attributes:
        targets: as given, some of them changed; Shape (n,).
        is_changed: Shape (n,).
        probabilities: by heads without the patient, Shape (n, K).
        neighbors: nearest labeled rows, Shape (n, k).
    """

    targets: NDArray[np.int64]
    is_changed: NDArray[np.bool_]
    probabilities: NDArray[np.float64]
    neighbors: NDArray[np.intp]


def changed_labels(
    targets: NDArray[np.int64], num_classes: int, rate: float, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Labels of which a fraction became another class, each as likely as the others; and which they are."""
    changed = random.permutation(len(targets))[: round(rate * len(targets))]
    given = targets.copy()
    given[changed] = (targets[changed] + random.integers(1, num_classes, size=len(changed))) % num_classes
    return given, np.isin(np.arange(len(targets)), changed)


def changed_patient(
    targets: NDArray[np.int64], owners: NDArray, num_classes: int, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Labels of which all of one class and patient became another class; and which they are.

    At least five labels change, and two further patients have the class.
    """
    of_class = [np.unique(owners[targets == number], return_counts=True) for number in range(num_classes)]
    groups = [
        (owner, number)
        for number, (names, counts) in enumerate(of_class)
        if len(names) >= FEWEST_PATIENTS
        for owner in names[counts >= FEWEST_LABELS]
    ]
    owner, number = groups[random.integers(len(groups))]
    is_changed = (owners == owner) & (targets == number)
    other = (number + random.integers(1, num_classes)) % num_classes
    return np.where(is_changed, other, targets), is_changed


def held_out(features: Features, labels: Labels, unlabeled: Features, owners: NDArray, seed: int) -> NDArray:
    """Probabilities by the selected heads without each row's patient, as `finetune` has them; Shape (n, K).

    Args:
        features: of the labeled rows.
        labels: of these rows.
        unlabeled: of all training patches.
        owners: patients of all training patches.
        seed: of the folds.

    Raises:
        ValueError: there are no folds.
    """
    settings = SelectionSettings()
    fold_of, why_none = patient_folds(labels, settings.num_folds, seed)
    if why_none:
        raise ValueError(why_none)
    probabilities = np.empty((len(fold_of), labels.num_classes or 1))
    for fold in np.unique(fold_of):
        learning, tested = fold_of != fold, fold_of == fold
        others = ~np.isin(owners, labels.patients[tested])
        head = select_head(
            {name: rows[learning] for name, rows in features.items()},
            Labels(labels.targets[learning], labels.patients[learning], labels.num_classes),
            {name: rows[others] for name, rows in unlabeled.items()},
            settings,
            derive_seed(seed, "fold", int(fold)),
        )
        probabilities[tested] = head.predict({name: rows[tested] for name, rows in features.items()})
    return probabilities


@dataclass(frozen=True)
class Trial:
    """A dataset with errors among its labels.

    Attributes:
        real: folder of the zips.
        cache: folder of features.
        task: of classes.
        source: of the features.
    """

    real: Path
    cache: Path
    task: RealTask
    source: Source

    def case(self, fold: int, subset: int, budget: int, rate: float) -> Case:
        """Labels of one fold's training patients, `rate` of them (or `ONE_PATIENT`) changed."""
        patches = read_patches(self.real, self.task)
        split = split_rows(self.task, patches, fold, subset, budget)
        features = self.source.features(self.real, self.cache, self.task, fold)
        num_classes = len(self.task.classes or ())
        random = generator(subset, "flips", fold, budget, round(100 * rate))
        true = targets_of(self.task, patches)[split.labeled]
        owners = dependence_groups(patches).astype(str)
        if rate == ONE_PATIENT:
            targets, is_changed = changed_patient(true, owners[split.labeled], num_classes, random)
        else:
            targets, is_changed = changed_labels(true, num_classes, rate, random)
        probabilities = held_out(
            {name: rows[split.labeled] for name, rows in features.items()},
            Labels(targets, owners[split.labeled], num_classes),
            {name: rows[split.unlabeled] for name, rows in features.items()},
            owners[split.unlabeled],
            subset,
        )
        last = list(standardized(features, split.unlabeled).values())[-1]
        return Case(targets, is_changed, probabilities, nearest_rows(last[split.labeled]))


def _margin(case: Case) -> NDArray[np.float64]:
    return Doubts.of_classes(case.probabilities, case.targets, None).doubt


def _class_margin(case: Case) -> NDArray[np.float64]:
    margin = _margin(case)
    means = np.bincount(case.targets, margin) / np.maximum(np.bincount(case.targets), 1)
    return np.asarray(margin - means[case.targets])


def _loss(case: Case) -> NDArray[np.float64]:
    given = case.probabilities[np.arange(len(case.targets)), case.targets]
    return np.asarray(-np.log(np.maximum(given, 1e-12)))


def _neighbors(case: Case) -> NDArray[np.float64]:
    return np.asarray((case.targets[case.neighbors] != case.targets[:, None]).mean(axis=1))


def _both(case: Case) -> NDArray[np.float64]:
    """What the product lists."""
    return Doubts.of_classes(case.probabilities, case.targets, case.neighbors).doubt


RANKINGS: Mapping[str, Callable[[Case], NDArray[np.float64]]] = {
    "loss": _loss,
    "margin": _margin,
    "margin of class": _class_margin,
    "neighbors": _neighbors,
    "margin + neighbors": _both,
}


def found(case: Case, doubt: NDArray[np.float64]) -> int:
    """Number of changed labels among the first `LISTED`; equal doubts are in random order."""
    order = np.lexsort((generator(len(doubt), "ties").permutation(len(doubt)), -doubt))
    return int(case.is_changed[order[:LISTED]].sum())


def table(
    trial: Trial,
    budgets: Sequence[int],
    subsets: Sequence[int],
    rates: Sequence[float] = (*RATES, ONE_PATIENT),
) -> Iterator[str]:
    """Rows of a table: labels, changed labels, and for each ranking how many of the changed ones are listed."""
    yield f"| labels | changed | random | {' | '.join(RANKINGS)} |"
    yield "|" + "---|" * (3 + len(RANKINGS))
    for budget in budgets:
        for rate in rates:
            cases = [
                trial.case(fold, subset, budget, rate)
                for subset in subsets
                for fold in range(trial.task.num_folds)
            ]
            numbers = [len(case.targets) for case in cases]
            changed = np.array([case.is_changed.sum() for case in cases])
            by_chance = float(np.mean([min(1.0, LISTED / number) for number in numbers]))
            cells = [
                f"{np.mean(numbers):.0f}",
                f"{rate:.0%}" if rate else "one patient's class",
                f"{by_chance:.3f}",
            ]
            for ranking in RANKINGS.values():
                listed = np.array([found(case, ranking(case)) for case in cases])
                of_changed = listed / changed
                cells.append(
                    f"{of_changed.mean():.3f} (lowest {of_changed.min():.2f}); {listed.mean() / LISTED:.2f}"
                )
            yield f"| {' | '.join(cells)} |"
