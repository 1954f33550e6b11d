"""Table of labeled patches: builder, writer and reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from histo_monai.data.tables.columns import PATCH_COLUMNS, SPLITS
from histo_monai.data.tables.stage_csv import read_stage_csv
from histo_monai.data.tables.texts import SharedTexts, come_again
from histo_monai.utils.errors import InputError

DTYPES = {
    **dict.fromkeys(("patch_id", "path", "slide_id", "patient_id", "label", "split"), "str"),
    **dict.fromkeys(("y", "x", "mpp", "score", "rater_a", "rater_b", "label_rank", "slide_mpp"), "float64"),
    "side_px": "int32",
}
"""Type of each of `PATCH_COLUMNS`."""


@dataclass(frozen=True)
class LabeledDataset:
    """Labeled patches of a dataset.

    Attributes:
        table: `PATCH_COLUMNS`. `split` is empty if the index assigns it, `label_rank` is missing.
        warnings: Data warnings, one line each.
        about_patients: Known facts on patients of a published dataset without patient ids, one line, or empty.
    """

    table: pd.DataFrame
    warnings: tuple[str, ...] = ()
    about_patients: str = ""


def labeled_table(rows: pd.DataFrame | Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows with some of `PATCH_COLUMNS` -> a table with all of them, in the order given.

    Missing texts become empty, missing numbers NaN. `patch_id`, `path` and `side_px` are required.

    Raises:
        InputError: There is no row, a column is unknown, a required one is missing, or a patch_id repeats.
    """
    table = pd.DataFrame(rows).reset_index(drop=True)
    if table.empty:
        raise InputError("no labeled patch. Fix: give the dataset labels.")
    for column in ("patch_id", "path", "side_px"):
        if column not in table or table[column].isna().any():
            raise InputError(f"labeled patches: a row has no {column}. Fix: give every row a {column}")
    unknown = [column for column in table.columns if column not in PATCH_COLUMNS]
    if unknown:
        raise InputError(
            f"labeled patches: unknown column {unknown[0]!r}. Fix: use {', '.join(PATCH_COLUMNS)}"
        )
    full = table.reindex(columns=list(PATCH_COLUMNS))
    shared = SharedTexts()
    for column, kind in DTYPES.items():
        if kind == "str":
            full[column] = shared.of(_as_texts(full[column]))
    full = full.astype(DTYPES)
    again = come_again(full, ["patch_id"])
    if again.any():
        name = full.loc[again, "patch_id"].iloc[0]
        first, second = full.loc[full["patch_id"] == name, "path"].iloc[:2]
        raise InputError(f"patch_id {name!r} is given twice, for {first} and {second}. Fix: make ids unique.")
    return full


def _as_texts(values: pd.Series) -> pd.Series:
    """Values of any type as texts; missing values become empty."""
    texts = values if isinstance(values.dtype, pd.StringDtype) else values.map(str)
    return texts.where(values.notna(), "")


def empty_table() -> pd.DataFrame:
    """Table of `PATCH_COLUMNS` without a row."""
    return pd.DataFrame(columns=list(PATCH_COLUMNS)).astype(DTYPES)


def write_patches(path: Path, table: pd.DataFrame) -> None:
    """Write a table of `labeled_table`; `read_patches` returns equal values."""
    table.to_csv(path, index=False, columns=list(PATCH_COLUMNS))


def read_patches(path: Path) -> pd.DataFrame:
    """Read a file of `write_patches`: columns and types of `labeled_table`, possibly without a row.

    Raises:
        InputError: The file is missing or is no such table, or a training patch has no rank.
    """
    types = {column: DTYPES[column] for column in PATCH_COLUMNS}
    table = read_stage_csv(path, types, stage="index", key=["patch_id"], among={"split": ("", *SPLITS)})
    unranked = (table["split"] == "train") & table["label_rank"].isna()
    if unranked.any():
        name = table.loc[unranked, "patch_id"].iloc[0]
        raise InputError(
            f"{path}: training patch {name} has no label_rank. Fix: run `dvc repro index` again."
        )
    return table
