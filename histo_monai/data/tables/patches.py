"""Labeled patches: one table for every dataset, how it is built, and how it is written and read."""

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
"""Of each of `PATCH_COLUMNS`."""


@dataclass(frozen=True)
class LabeledDataset:
    """What a dataset offers to be learned from.

    Attributes:
        table: `PATCH_COLUMNS`. `split` is empty where it is still to be drawn, `label_rank` is missing everywhere.
        warnings: what a reader of the results must know, one line each.
        about_patients: what is known of a published dataset without patient ids, a line; empty for no more than that
            it has none.
    """

    table: pd.DataFrame
    warnings: tuple[str, ...] = ()
    about_patients: str = ""


def labeled_table(rows: pd.DataFrame | Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows with some of `PATCH_COLUMNS` -> a table with all of them, in the order given.

    Texts that are not given are empty, numbers missing (NaN). `patch_id`, `path` and `side_px` are needed.

    Raises:
        InputError: there is no row, a column is unknown or a needed one is missing, or a patch_id comes twice.
    """
    table = pd.DataFrame(rows).reset_index(drop=True)
    if table.empty:
        raise InputError("no labeled patch at all")
    for column in ("patch_id", "path", "side_px"):
        if column not in table or table[column].isna().any():
            raise InputError(f"labeled patches need a {column} in every row")
    unknown = [column for column in table.columns if column not in PATCH_COLUMNS]
    if unknown:
        raise InputError(f"column {unknown[0]!r} is none of a labeled patch: {', '.join(PATCH_COLUMNS)}")
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
        raise InputError(f"patch_id {name!r} is given twice, for {first} and {second}; ids are unique")
    return full


def _as_texts(values: pd.Series) -> pd.Series:
    """Of whatever a reader gives; empty where it is missing."""
    texts = values if isinstance(values.dtype, pd.StringDtype) else values.map(str)
    return texts.where(values.notna(), "")


def empty_table() -> pd.DataFrame:
    """A table as `labeled_table` makes it, without a row."""
    return pd.DataFrame(columns=list(PATCH_COLUMNS)).astype(DTYPES)


def write_patches(path: Path, table: pd.DataFrame) -> None:
    """Write a table as `labeled_table` makes it; `read_patches` gives it back to the last bit."""
    table.to_csv(path, index=False, columns=list(PATCH_COLUMNS))


def read_patches(path: Path) -> pd.DataFrame:
    """Read what `write_patches` wrote: the columns and types of `labeled_table`; it may hold no row.

    Raises:
        InputError: see `read_stage_csv`; or a training patch has no rank.
    """
    types = {column: DTYPES[column] for column in PATCH_COLUMNS}
    table = read_stage_csv(path, types, stage="index", key=["patch_id"], among={"split": ("", *SPLITS)})
    unranked = (table["split"] == "train") & table["label_rank"].isna()
    if unranked.any():
        name = table.loc[unranked, "patch_id"].iloc[0]
        raise InputError(f"{path}: training patch {name} has no label_rank; run `dvc repro index` again")
    return table
