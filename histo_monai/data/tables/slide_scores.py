"""Table of slide scores by classifiers, which the aggregate stage writes, and its reader."""

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
"""Ids and label of a slide; columns of models follow."""

SCORE = "score"


def score_column(model: str) -> str:
    """Column of a model's score: the signed distance from the classifier's border, above 0 for tumor."""
    return f"{model}_{SCORE}"


@dataclass(frozen=True)
class SlideScores:
    """Diagnosed test slides.

    Attributes:
        path: File of the table.
        rows: `ID_COLUMNS`, one row per labeled test slide.
        predictions: Model name -> shape (n,), scores; empty without a diagnosis.
    """

    path: Path
    rows: pd.DataFrame
    predictions: Mapping[str, NDArray[np.float64]]


def read_slide_scores(path: Path) -> SlideScores:
    """Scores of labeled test slides from a table of the aggregate stage.

    Raises:
        InputError: The file is missing or is no such table, or a score is no number; names the file.
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
            raise InputError(f"{path}: {name} has no score for slide {slide}. Fix: run aggregate again.")
    return SlideScores(path, rows[list(ID_COLUMNS)], predictions)


def check_same_slides(first: SlideScores, second: SlideScores) -> None:
    """Refuse two tables for paired tests if their slides, labels, models or order differ.

    Raises:
        InputError: Names both files.
    """
    same = first.rows[["slide_id", "label"]].equals(second.rows[["slide_id", "label"]])
    if not same or list(first.predictions) != list(second.predictions):
        raise InputError(
            f"{first.path} and {second.path}: different slides, labels or models. Fix: run aggregate for both."
        )
