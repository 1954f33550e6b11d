"""Task of a table of labeled patches: classes or scores, targets, and dependence groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from histo_monai.utils.errors import InputError
from histo_monai.utils.escapes import markdown

if TYPE_CHECKING:  # Importing torch takes a second, which stages without a network save.
    import torch


def task_classes(table: pd.DataFrame) -> list[str] | None:
    """Class names in alphabetical order, the order of class numbers; None for scores.

    Raises:
        InputError: The table has no labeled patch.
    """
    if table.empty:
        raise InputError(
            "there is no labeled patch. Fix: give the dataset its labels and run `dvc repro index` again."
        )
    return None if table["score"].notna().any() else sorted(table["label"].unique())


def task_targets(table: pd.DataFrame, classes: list[str] | None) -> torch.Tensor:
    """Class numbers, int64, or scores, float32, shape (rows,)."""
    import torch

    if classes is None:
        return torch.tensor(table["score"].to_numpy(np.float32))
    return torch.from_numpy(pd.Index(classes).get_indexer(pd.Index(table["label"])).astype(np.int64))


def training_mpp(table: pd.DataFrame, patch_px: int) -> float | None:
    """µm per pixel of training patches at side `patch_px`; None if unknown or mixed."""
    rows = split_rows(table, "train")
    mpps = (rows["mpp"] * rows["side_px"] / patch_px).round(6).unique()
    return float(mpps[0]) if len(mpps) == 1 and mpps[0] > 0 else None


def split_rows(table: pd.DataFrame, split: str) -> pd.DataFrame:
    """Rows of a split; index from 0."""
    return table[table["split"] == split].reset_index(drop=True)


def dependence_groups(table: pd.DataFrame) -> np.ndarray:
    """Dependence group of each patch, shape (rows,), texts: its patient, else its slide, else the patch.

    If all patches are of one patient, each patch is a group, and `of_one_group` gives a data warning.
    """
    groups = grouping_key(table)
    return (groups if groups.nunique() > 1 else table["patch_id"]).to_numpy(dtype=object)


def sole_groups(table: pd.DataFrame) -> dict[str, str]:
    """Class -> its only grouping key, for each class with one: no training fold has the class without this group.

    Scores count as one class, with an empty name.

    Args:
        table: Labeled patches, `data.tables.columns.PATCH_COLUMNS`.
    """
    groups = grouping_key(table).groupby(table["label"]).unique()
    return {str(label): str(some[0]) for label, some in groups.items() if len(some) == 1}


def of_one_group(table: pd.DataFrame, split: str) -> list[str]:
    """Data warning on a split whose patches are all of one patient or slide."""
    groups = grouping_key(table).unique()
    if len(groups) != 1 or len(table) == 1:
        return []
    one = markdown(str(groups[0]))  # The line becomes one of report.md.
    return [f"all {split} patches are of {one}: intervals resample patches and do not cover other patients"]


def patient_or_slide(table: pd.DataFrame) -> pd.Series:
    """Grouping key of each row: its patient, else its slide; texts."""
    return ("patient " + table["patient_id"]).where(table["patient_id"] != "", "slide " + table["slide_id"])


def grouping_key(table: pd.DataFrame) -> pd.Series:
    """Grouping key of each row: its patient, else its slide, else the patch itself; texts."""
    known = (table["patient_id"] != "") | (table["slide_id"] != "")
    return patient_or_slide(table).where(known, "patch " + table["patch_id"])
