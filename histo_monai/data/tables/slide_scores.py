"""Scores of every slide by classifiers: the table that the aggregate stage leaves, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.stage_csv import read_stage_csv
from histo_monai.utils.errors import InputError

ID_COLUMNS = ("slide_id", "patient_id", "split", "label", "size")
"""Ids of a slide and its label; the columns of the models follow them."""

SCORE = "score"


def score_column(model: str) -> str:
    """Column of a model's score: the signed distance from the classifier's border, above 0 for tumor."""
    return f"{model}_{SCORE}"


@dataclass(frozen=True)
class SlideScores:
    """Diagnosed test slides.

    Attributes:
        path: of the csv.
        rows: `ID_COLUMNS`, one row per test slide with a label.
        predictions: name of a model -> shape (n,), scores; no model where there was no diagnosis.
    """

    path: Path
    rows: pd.DataFrame
    predictions: Mapping[str, NDArray[np.float64]]


def read_slide_scores(path: Path) -> SlideScores:
    """Read the test slides of a table of the aggregate stage.

    Raises:
        InputError: see `read_stage_csv`; or a score is no number; names the file.
    """
    table = read_stage_csv(
        path, dict.fromkeys(ID_COLUMNS, "str"), stage="aggregate", key=["slide_id"], more=True
    )
    ending = f"_{SCORE}"
    models = [str(name).removesuffix(ending) for name in table.columns if str(name).endswith(ending)]
    rows = table[(table["split"] == "test") & (table["label"] != "")].reset_index(drop=True)
    predictions = {
        name: pd.to_numeric(rows[score_column(name)], errors="coerce").to_numpy() for name in models
    }
    for name, values in predictions.items():
        if not np.isfinite(values).all():
            slide = rows["slide_id"][int((~np.isfinite(values)).argmax())]
            raise InputError(f"{path}: {name} has no score for slide {slide}; run aggregate again")
    return SlideScores(path, rows[list(ID_COLUMNS)], predictions)


def check_same_slides(first: SlideScores, second: SlideScores) -> None:
    """Paired tests take two tables of the same slides and labels in the same order.

    Raises:
        InputError: they are not; names both files.
    """
    same = first.rows[["slide_id", "label"]].equals(second.rows[["slide_id", "label"]])
    if not same or list(first.predictions) != list(second.predictions):
        raise InputError(
            f"{first.path} and {second.path}: of different slides, labels or models; run aggregate for both"
        )
