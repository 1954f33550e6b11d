"""Folds for cross-validation on labeled patches: a patient, else a slide, is in one fold."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Fold of each patient, with or without a label.

    Attributes:
        fold_of: Grouping key -> fold number, from 0; empty without folds.
        why_none: Reason in one line if the labels cannot be cross-validated; else empty.
    """

    fold_of: dict[str, int]
    why_none: str = ""

    @property
    def num(self) -> int:
        """Number of folds; 0 if the labels cannot be cross-validated."""
        return len(set(self.fold_of.values()))

    def of(self, rows: pd.DataFrame) -> NDArray[np.int64]:
        """Fold number of each patch, shape (rows,); -1 for patients without a fold."""
        return self._numbers(grouping_key(rows))

    def of_slides(self, slides: pd.DataFrame) -> NDArray[np.int64]:
        """Fold number of each slide, shape (rows,); -1 for patients without a fold."""
        return self._numbers(patient_or_slide(slides))

    def with_others(self, patients: Sequence[str]) -> LabelFolds:
        """These folds, with patients that have none dealt in turn; unchanged without folds."""
        fold_of = dict(self.fold_of)
        for patient in patients if self.num else ():
            fold_of.setdefault(patient, len(fold_of) % self.num)
        return LabelFolds(fold_of, self.why_none)

    def _numbers(self, keys: pd.Series) -> NDArray[np.int64]:
        return np.array([self.fold_of.get(key, -1) for key in keys], np.int64)


def deal_folds(
    train: pd.DataFrame, labeled: pd.DataFrame, num_folds: int, generator: np.random.Generator
) -> LabelFolds:
    """Folds of patients in which the training part of every fold has labels of each class.

    Shuffled patients are assigned in turn: labeled ones class by class, the rarest class first, then the others. The
    number of folds is reduced if a training part would lack a class.

    Args:
        train: Rows of all training patches; labels outside `labeled` are not used.
        labeled: Rows of `train` with used labels.
        num_folds: Largest number of folds.
        generator: Random generator; the order of the rows has no effect.
    """
    of_labeled = grouping_key(labeled).to_numpy(object)
    targets = labeled["label"].to_numpy(object)
    patients_of = {
        name: np.unique(of_labeled[targets == name].astype(str)) for name in np.unique(targets.astype(str))
    }
    lacking = [str(name) for name, patients in patients_of.items() if len(patients) < 2]
    if lacking:
        what = f"class {lacking[0]!r} has labels" if lacking[0] else "there are labels"
        return LabelFolds({}, f"{what} of fewer than two patients, so the labels cannot be cross-validated")
    others = np.setdiff1d(grouping_key(train).to_numpy(str), of_labeled.astype(str))
    for num in range(num_folds, 1, -1):
        for _ in range(_ATTEMPTS):
            fold_of = _deal(patients_of, others, num, generator)
            if _leaves_every_class(fold_of, of_labeled, targets, num):
                return LabelFolds(fold_of)
    return LabelFolds(
        {},
        "no two folds of patients leave labels of every class for training, so the labels cannot be cross-validated",
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
    """Whether each fold has a label, and its training part has two labels and every class."""
    folds = np.array([fold_of[patient] for patient in of_labeled])
    classes = len(set(targets))
    return all(
        (folds == fold).any() and len(set(targets[folds != fold])) == classes and (folds != fold).sum() > 1
        for fold in range(num)
    )


_COLUMNS = ("patient", "fold")


def write_folds(path: Path, folds: LabelFolds) -> None:
    """Write a csv of `patient` (grouping key) and `fold`; without folds the csv has only a header."""
    pd.DataFrame(sorted(folds.fold_of.items()), columns=list(_COLUMNS)).to_csv(path, index=False)


def read_folds(path: Path) -> LabelFolds:
    """Folds from a file of `write_folds`; `why_none` is not stored.

    Raises:
        InputError: The file is missing or is no such table.
    """
    types = dict(zip(_COLUMNS, ("str", "int64"), strict=True))
    table = read_stage_csv(path, types, stage="finetune", key=["patient"])
    refuse_rows(
        path, table["fold"] < 0, "a fold from 0 on in every row", "run finetune and consistency again"
    )
    return LabelFolds(dict(zip(table["patient"], table["fold"].tolist(), strict=True)))
