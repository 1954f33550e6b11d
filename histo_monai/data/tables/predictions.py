"""Table of patch predictions: builder, writer and reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.columns import SPLITS
from histo_monai.data.tables.stage_csv import read_stage_csv, refuse_rows
from histo_monai.data.tables.tasks import dependence_groups
from histo_monai.utils.errors import InputError

_TEXTS = ("patch_id", "split", "slide_id", "patient_id", "label")
_NUMBERS = ("score", "rater_a", "rater_b")
ID_COLUMNS = (*_TEXTS, *_NUMBERS)
"""Ids and targets of a patch; columns of models follow."""

_UNITS = ("patients", "slides", "patches")
_SUM_TOLERANCE = 1e-3
_AGAIN = "run evaluate again"


@dataclass(frozen=True)
class Predictions:
    """Predictions of models for patches.

    Attributes:
        path: File of the table.
        rows: `ID_COLUMNS`, one row per patch; unknown texts are empty, unknown numbers NaN.
        classes: Names of the K classes; None for scores.
        predictions: Model name -> shape (n, K), probabilities; or (n,), scores.
    """

    path: Path
    rows: pd.DataFrame
    classes: tuple[str, ...] | None
    predictions: Mapping[str, NDArray[np.float64]]

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits with patches, training first."""
        return tuple(split for split in SPLITS if (self.rows["split"] == split).any())

    def of_split(self, split: str) -> Predictions:
        """Predictions for one split."""
        rows = (self.rows["split"] == split).to_numpy()
        predictions = {name: values[rows] for name, values in self.predictions.items()}
        return replace(self, rows=self.rows[rows].reset_index(drop=True), predictions=predictions)

    @property
    def references(self) -> dict[str, NDArray]:
        """Targets by the suffix of their metrics, shape (n,) each.

        {"": class numbers}; {"_a": scores, "_b": scores} if two pathologists rated every patch; else {"": scores}.
        """
        if self.classes is not None:
            return {"": pd.Index(self.classes).get_indexer(pd.Index(self.rows["label"]))}
        if self.rows[["rater_a", "rater_b"]].notna().all(axis=None):
            return {f"_{rater}": self.rows[f"rater_{rater}"].to_numpy() for rater in "ab"}
        return {"": self.rows["score"].to_numpy()}

    @property
    def groups(self) -> NDArray[np.object_]:
        """Dependence group of each patch, shape (n,), texts."""
        return dependence_groups(self.rows)

    @property
    def unit(self) -> str:
        """Unit of the groups: "patients", "slides" or "patches"; for mixed groups the first of these."""
        groups = self.groups
        if len(set(groups)) == len(groups):
            return "patches"
        return next(kind for kind in _UNITS if any(name.startswith(f"{kind[:-1]} ") for name in groups))


def predictions_table(
    rows: pd.DataFrame, predictions: Mapping[str, np.ndarray], classes: Sequence[str] | None
) -> pd.DataFrame:
    """Table with one row per patch: `ID_COLUMNS`, and `<model>_<class>` probabilities or the `<model>` score.

    Args:
        rows: Columns `ID_COLUMNS`.
        predictions: Model name -> shape (n, K), or (n, 1) for scores.
        classes: Names of the K classes; None for scores.
    """
    columns = {
        f"{name}_{label}" if label else name: values[:, k]
        for name, values in predictions.items()
        for k, label in enumerate(classes or [""])
    }
    return pd.concat([rows[list(ID_COLUMNS)], pd.DataFrame(columns, index=rows.index)], axis=1)


def write_predictions(path: Path, tables: Sequence[pd.DataFrame]) -> None:
    """Write tables of `predictions_table`, one per split, into one csv with six digits."""
    pd.concat(tables).to_csv(path, index=False, float_format="%.6g")


def read_predictions(path: Path) -> Predictions:
    """Read a file of `write_predictions`.

    Raises:
        InputError: The file is missing or is no such table, a patch has neither label nor score, a prediction is no
            number, or probabilities do not sum to 1. Names the file and the row (the header is row 1).
    """
    table = _read(path)
    refuse_rows(path, table["patch_id"] == "", "a patch_id in every row", _AGAIN)
    columns = [str(name) for name in table.columns if name not in ID_COLUMNS]
    scored = table["score"].notna()
    if scored.any():
        refuse_rows(path, ~scored, "a score in every row", _AGAIN)
        classes, models = None, columns
    else:
        refuse_rows(path, table["label"] == "", "a label or a score in every row", _AGAIN)
        classes, models = _classes_and_models(path, columns, set(table["label"]))
    values = _numbers(path, table[columns])
    predictions = {
        name: values[:, i] if classes is None else values[:, i * len(classes) : (i + 1) * len(classes)]
        for i, name in enumerate(models)
    }
    for name, probs in predictions.items():
        if classes is not None:
            wrong = (probs.min(axis=1) < 0) | (np.abs(probs.sum(axis=1) - 1) > _SUM_TOLERANCE)
            refuse_rows(path, pd.Series(wrong), f"probabilities of {name} from 0 to 1 that sum to 1", _AGAIN)
    return Predictions(path, table[list(ID_COLUMNS)], classes, predictions)


def check_same_patches(first: Predictions, second: Predictions) -> None:
    """Refuse two tables for paired tests if their patches, labels, classes or order differ.

    Raises:
        InputError: Names both files and the first row that differs (the header is row 1).
    """
    if first.classes != second.classes:
        raise InputError(
            f"{first.path} and {second.path}: classes {first.classes} and {second.classes}. Fix: run evaluate for both."
        )
    shared = min(len(first.rows), len(second.rows))
    for column in ID_COLUMNS:
        one, other = first.rows[column].iloc[:shared], second.rows[column].iloc[:shared]
        differs = (one.to_numpy() != other.to_numpy()) & ~(one.isna() & other.isna()).to_numpy()
        if differs.any():
            row = int(differs.argmax())
            given = f"{one.tolist()[row]!r} in one and {other.tolist()[row]!r} in the other"
            raise InputError(
                f"{first.path} and {second.path}: row {row + 2} has {column} {given}, but a comparison needs equal "
                "patches. Fix: run evaluate for both."
            )
    if len(first.rows) != len(second.rows):
        longer = max(first, second, key=lambda table: len(table.rows))
        raise InputError(
            f"{first.path} and {second.path}: {len(first.rows)} and {len(second.rows)} patches; the first one in one "
            f"file only is {longer.rows['patch_id'][shared]!r}. Fix: run evaluate for both."
        )


def _read(path: Path) -> pd.DataFrame:
    types = dict.fromkeys(_TEXTS, "str") | dict.fromkeys(_NUMBERS, "float64")
    table = read_stage_csv(
        path, types, stage="evaluate", key=["patch_id"], among={"split": SPLITS}, more=True
    )
    if len(table.columns) == len(ID_COLUMNS) or table.empty:
        lacks = "rows" if table.empty else "columns of models"
        raise InputError(f"{path}: no table of predictions (it has no {lacks}). Fix: {_AGAIN}.")
    return table


def _classes_and_models(
    path: Path, columns: list[str], labels: set[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Names of the classes and of the models from columns `<model>_<class>`, ordered by model.

    Both names may contain underscores. The split of names is the one in which all models have equal classes, which
    include every label.
    """
    for num in range(2, len(columns) + 1):
        first = columns[:num]
        for cut in (i + 1 for i, letter in enumerate(first[0]) if letter == "_"):
            classes = tuple(name[cut:] for name in first)
            models = [name.removesuffix(f"_{classes[0]}") for name in columns[::num]]
            whole = [f"{model}_{label}" for model in models for label in classes] == columns
            if whole and len(set(models)) == len(models) and labels <= set(classes):
                return classes, models
    raise InputError(
        f"{path}: columns {', '.join(columns[:4])}, ... are no <model>_<class> of the labels "
        f"{', '.join(sorted(labels))}. Fix: {_AGAIN}."
    )


def _numbers(path: Path, table: pd.DataFrame) -> NDArray[np.float64]:
    numbers = table.apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        given = table.iloc[row, column]
        raise InputError(
            f"{path}, row {row + 2}: {table.columns[column]} is {given!r}, not a number. Fix: {_AGAIN}."
        )
    return numbers
