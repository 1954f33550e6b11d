"""Folds for cross-validation on labeled patches: a patient, or slide, is in one fold alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.stage_csv import read_stage_csv, refuse_rows
from histo_monai.data.tables.tasks import grouping_key, patient_or_slide

_ATTEMPTS = 50


@dataclass(frozen=True)
class LabelFolds:
    """Which fold each patient is in; a patient without a label is in one, too.

    Attributes:
        fold_of: grouping key -> number of its fold, from 0; empty where there are no folds.
        why_none: why the labels cannot be cross-validated, in a line; empty where they can.
    """

    fold_of: dict[str, int]
    why_none: str = ""

    @property
    def num(self) -> int:
        """Number of folds; 0 where the labels cannot be cross-validated."""
        return len(set(self.fold_of.values()))

    def of(self, rows: pd.DataFrame) -> NDArray[np.int64]:
        """The fold of each row of a table of patches or slides; -1 for patients that are in none. Shape (rows,)."""
        return self._numbers(grouping_key(rows))

    def of_slides(self, slides: pd.DataFrame) -> NDArray[np.int64]:
        """The same of a table of slides."""
        return self._numbers(patient_or_slide(slides))

    def _numbers(self, keys: pd.Series) -> NDArray[np.int64]:
        return np.array([self.fold_of.get(key, -1) for key in keys], np.int64)


def deal_folds(
    train: pd.DataFrame, labeled: pd.DataFrame, num_folds: int, generator: np.random.Generator
) -> LabelFolds:
    """Deal patients into folds, those of each class in turn, so that every fold leaves each class to learn from.

    Patients are shuffled, those with labels dealt class by class, the rarest class first, then the others. Fewer folds
    are taken where `num_folds` would leave a class without a label.

    Args:
        train: rows of all training patches; of those that are not in `labeled` no label is looked at.
        labeled: the rows among them whose labels are given.
        num_folds: at most.
        generator: decides; the order of the rows does not.
    """
    of_labeled = grouping_key(labeled).to_numpy(object)
    targets = labeled["label"].to_numpy(object)
    patients_of = {
        name: np.unique(of_labeled[targets == name].astype(str)) for name in np.unique(targets.astype(str))
    }
    lacking = [str(name) for name, patients in patients_of.items() if len(patients) < 2]
    if lacking:
        what = f"class {lacking[0]!r} has labels" if lacking[0] else "labels are"
        return LabelFolds({}, f"{what} of fewer than two patients, so the labels cannot be cross-validated")
    others = np.setdiff1d(grouping_key(train).to_numpy(str), of_labeled.astype(str))
    for num in range(num_folds, 1, -1):
        for _ in range(_ATTEMPTS):
            fold_of = _deal(patients_of, others, num, generator)
            if _leaves_every_class(fold_of, of_labeled, targets, num):
                return LabelFolds(fold_of)
    return LabelFolds(
        {},
        "no two folds of patients leave labels of every class to learn from, so nothing can be cross-validated",
    )


def _deal(
    patients_of: dict[str, NDArray], others: NDArray, num: int, generator: np.random.Generator
) -> dict[str, int]:
    fold_of: dict[str, int] = {}
    rarest_first = sorted(patients_of, key=lambda name: (len(patients_of[name]), name))
    for patients in (*(patients_of[name] for name in rarest_first), others):
        for patient in generator.permutation(patients):
            fold_of.setdefault(str(patient), len(fold_of) % num)
    return fold_of


def _leaves_every_class(fold_of: dict[str, int], of_labeled: NDArray, targets: NDArray, num: int) -> bool:
    """Whether each fold holds a label, and the others hold labels of every class."""
    folds = np.array([fold_of[patient] for patient in of_labeled])
    classes = len(set(targets))
    return all(
        (folds == fold).any() and len(set(targets[folds != fold])) == classes and (folds != fold).sum() > 1
        for fold in range(num)
    )


_COLUMNS = ("patient", "fold")


def write_folds(path: Path, folds: LabelFolds) -> None:
    """Write a csv of `patient` (its grouping key) and `fold`; without folds it holds its header alone."""
    pd.DataFrame(sorted(folds.fold_of.items()), columns=list(_COLUMNS)).to_csv(path, index=False)


def read_folds(path: Path) -> LabelFolds:
    """What `write_folds` wrote; `why_none` is not in it.

    Raises:
        InputError: see `read_stage_csv`.
    """
    types = dict(zip(_COLUMNS, ("str", "int64"), strict=True))
    table = read_stage_csv(path, types, stage="finetune", key=["patient"])
    refuse_rows(
        path, table["fold"] < 0, "a fold from 0 on in every row", "run finetune and consistency again"
    )
    return LabelFolds(dict(zip(table["patient"], table["fold"].tolist(), strict=True)))
