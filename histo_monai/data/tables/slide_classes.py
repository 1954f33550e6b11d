"""Table of slide predictions by models of slide labels, which the mil stage writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.slide_scores import ID_COLUMNS
from histo_monai.data.tables.stage_csv import read_stage_csv
from histo_monai.data.tables.tasks import patient_or_slide
from histo_monai.utils.errors import InputError

FOLD = "fold"
NO_FOLD = -1
"""Fold of a slide outside training: all networks score it."""
TEST, CROSS_FITTED = "test slides", "cross-fitted slides"
_BETWEEN = ":"


@dataclass(frozen=True)
class SlideClasses:
    """Labeled slides with predictions of models that did not use their labels.

    Attributes:
        path: File of the table.
        part: `TEST`, or `CROSS_FITTED` without labeled test slides.
        rows: `ID_COLUMNS`.
        classes: Class names by number.
        predictions: Model name -> shape (n, K), probabilities; empty if no model was trained.
    """

    path: Path
    part: str
    rows: pd.DataFrame
    classes: tuple[str, ...]
    predictions: Mapping[str, NDArray[np.float64]]

    @property
    def labels(self) -> NDArray[np.int64]:
        """Class number of each slide, shape (n,)."""
        return pd.Index(self.classes).get_indexer(pd.Index(self.rows["label"])).astype(np.int64)

    @property
    def groups(self) -> NDArray[np.object_]:
        """Patient of each slide, else the slide itself, shape (n,)."""
        return patient_or_slide(self.rows).to_numpy(dtype=object)


def slide_classes_table(
    slides: pd.DataFrame,
    folds: NDArray[np.int64],
    classes: Sequence[str],
    predictions: Mapping[str, NDArray[np.float64]],
) -> pd.DataFrame:
    """Table of slide predictions, the input of `read_slide_classes`.

    Args:
        slides: Columns `ID_COLUMNS`.
        folds: Fold number of each slide, or `NO_FOLD`.
        classes: Class names by number.
        predictions: Model name -> shape (n, K).
    """
    columns = {
        f"{model}{_BETWEEN}{name}": values[:, number]
        for model, values in predictions.items()
        for number, name in enumerate(classes)
    }
    return slides[list(ID_COLUMNS)].reset_index(drop=True).assign(**{FOLD: folds}, **columns)


def read_slide_classes(path: Path) -> SlideClasses:
    """Predictions for labeled test slides, else for the slides of the folds.

    Raises:
        InputError: The file is missing or is no such table, a probability is missing, or a test slide has a label that
            no other slide has; names the file.
    """
    types = {**dict.fromkeys(ID_COLUMNS, "str"), FOLD: "int64"}
    table = read_stage_csv(path, types, stage="mil", key=["slide_id"], more=True)
    models: dict[str, list[str]] = {}
    for column in table.columns[len(types) :]:
        model, _, _ = str(column).partition(_BETWEEN)
        models.setdefault(model, []).append(str(column))
    named = [[column.partition(_BETWEEN)[2] for column in columns] for columns in models.values()]
    classes = tuple(named[0]) if named else ()
    labeled = table["label"] != ""
    tested = labeled & (table["split"] == "test")
    part = TEST if tested.any() else CROSS_FITTED
    rows = table[tested if tested.any() else labeled & (table[FOLD] != NO_FOLD)].reset_index(drop=True)
    foreign = sorted(set(rows["label"]) - set(classes)) if models else []
    if foreign:
        raise InputError(
            f"{path}: a slide has the label {foreign[0]!r}, which no model learned. Fix: run mil again."
        )
    predictions = {}
    for model, columns in models.items():
        predictions[model] = rows[columns].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
        if not np.isfinite(predictions[model]).all():
            raise InputError(f"{path}: a probability of {model} is missing. Fix: run `dvc repro mil` again.")
    return SlideClasses(path, part, rows[list(ID_COLUMNS)], classes, predictions)


def classes_to_learn(slides: pd.DataFrame) -> tuple[list[str], str]:
    """Classes learnable from slide labels, in alphabetical order, with an empty text; or none, with the reason.

    Args:
        slides: `data.tables.columns.WHOLE_SLIDE_COLUMNS`.
    """
    known = slides[(slides["split"] != "test") & (slides["label"] != "")]
    classes = sorted(known["label"].unique())
    if len(classes) < 2:
        have = f"{len(known)} of {(slides['split'] != 'test').sum()} slides outside the test have one"
        also = f", all of them {classes[0]!r}" if classes else ""
        return [], f"slide labels are not used: {have}{also}"
    num = known.assign(group=patient_or_slide(known)).groupby("label")["group"].nunique()
    rare = sorted(num.index[num < 2])
    if rare:
        return [], (
            f"slide labels are not used: {rare[0]!r} has one slide or patient, but cross-validation needs two. "
            "Fix: label another, or leave its label empty"
        )
    foreign = sorted(set(slides.loc[slides["split"] == "test", "label"]) - {"", *classes})
    if foreign:
        return [], (
            f"slide labels are not used: only test slides have the label {foreign[0]!r}. Fix: label training slides "
            "with it, or leave it empty"
        )
    return classes, ""
