"""What a table of labeled patches asks for: classes or a score, targets, and which patches belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from histo_monai.utils.errors import InputError
from histo_monai.utils.escapes import markdown

if TYPE_CHECKING:  # takes a second, which stages without a network spare
    import torch


def task_classes(table: pd.DataFrame) -> list[str] | None:
    """Names of the classes in alphabetical order, which is the order of their numbers; None where there are scores.

    Raises:
        InputError: the table has no labeled patch.
    """
    if table.empty:
        raise InputError(
            "there is no labeled patch; give the dataset its labels and run `dvc repro index` again"
        )
    return None if table["score"].notna().any() else sorted(table["label"].unique())


def task_targets(table: pd.DataFrame, classes: list[str] | None) -> torch.Tensor:
    """Class numbers, int64, or scores, float32. Shape (rows,)."""
    import torch

    if classes is None:
        return torch.tensor(table["score"].to_numpy(np.float32))
    return torch.from_numpy(pd.Index(classes).get_indexer(pd.Index(table["label"])).astype(np.int64))


def training_mpp(table: pd.DataFrame, patch_px: int) -> float | None:
    """µm per pixel of patches of `patch_px`; None where the training patches do not have it, or differ."""
    rows = split_rows(table, "train")
    mpps = (rows["mpp"] * rows["side_px"] / patch_px).round(6).unique()
    return float(mpps[0]) if len(mpps) == 1 and mpps[0] > 0 else None


def split_rows(table: pd.DataFrame, split: str) -> pd.DataFrame:
    """The rows of a split, numbered anew."""
    return table[table["split"] == split].reset_index(drop=True)


def dependence_groups(table: pd.DataFrame) -> np.ndarray:
    """Patches of one patient, else of one slide, belong together; else each is on its own. Shape (rows,), texts.

    Where all are of one patient nothing can be concluded on other patients: each patch is on its own then, and
    `of_one_group` has the words for it.
    """
    groups = grouping_key(table)
    return (groups if groups.nunique() > 1 else table["patch_id"]).to_numpy(dtype=object)


def sole_groups(table: pd.DataFrame) -> dict[str, str]:
    """Class -> its patient, slide or patch, of each class with only one: no fold can leave it out and keep the class.

    Scores count as one class, with an empty name.

    Args:
        table: labeled patches, `data.tables.columns.PATCH_COLUMNS`.
    """
    groups = grouping_key(table).groupby(table["label"]).unique()
    return {str(label): str(some[0]) for label, some in groups.items() if len(some) == 1}


def of_one_group(table: pd.DataFrame, split: str) -> list[str]:
    """Data warning on a split whose patches are all of one patient or slide."""
    groups = grouping_key(table).unique()
    if len(groups) != 1 or len(table) == 1:
        return []
    one = markdown(str(groups[0]))  # The line becomes one of report.md.
    return [f"all {split} patches are of {one}: intervals resample patches and are silent about others"]


def patient_or_slide(table: pd.DataFrame) -> pd.Series:
    """Who a row belongs to: its patient, or its slide where no patient is known; texts."""
    return ("patient " + table["patient_id"]).where(table["patient_id"] != "", "slide " + table["slide_id"])


def grouping_key(table: pd.DataFrame) -> pd.Series:
    """Grouping key of each row: its patient, else its slide, else the patch itself; texts."""
    known = (table["patient_id"] != "") | (table["slide_id"] != "")
    return patient_or_slide(table).where(known, "patch " + table["patch_id"])
