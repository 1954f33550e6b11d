"""The tables that datasets are turned into, and how a csv of somebody else is read: strictly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

SPLITS = ("train", "validation", "test")

CORPUS_COLUMNS = ("slide_id", "path", "patient_id", "mpp", "split")
"""Slides to pretrain on, one row each: `patient_id` empty where unknown, `mpp` missing where the file must tell it,
`split` empty where it is still to be drawn."""

PATCH_COLUMNS = (
    "patch_id",
    "path",
    "slide_id",
    "patient_id",
    "y",
    "x",
    "mpp",
    "side_px",
    "label",
    "score",
    "rater_a",
    "rater_b",
    "split",
    "label_rank",
)
"""Labeled patches, one row each. A patch is either a whole image file (`path` names it, through a zip as if that were a
folder) or a square of a slide (`slide_id` is in the table, `path` is the slide's file, `y` and `x` are the center in
level-0 pixels, `mpp` the resolution to read at). Texts are empty and numbers missing where a dataset has none."""


def corpus_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows -> a table with `CORPUS_COLUMNS`, in the order given.

    Raises:
        ValueError: there is no row, or a slide_id comes twice.
    """
    if not rows:
        raise ValueError("the corpus has no slide; name at least two, so that one can be kept for validation")
    full = [{"patient_id": "", "mpp": None, "split": "", **row} for row in rows]
    table = pd.DataFrame(full, columns=list(CORPUS_COLUMNS)).astype({"mpp": "float64"})
    twice = table[table["slide_id"].duplicated(keep=False)]
    if len(twice):
        first, second = twice["path"].iloc[:2]
        raise ValueError(
            f"slide_id {twice['slide_id'].iloc[0]!r} is given twice, for {first} and {second}; ids are unique"
        )
    return table


def read_table(path: Path, needed: Sequence[str], known: Sequence[str]) -> pd.DataFrame:
    """Read a csv as text: every value a stripped `str`, empty where nothing stands.

    Raises:
        ValueError: the file is not a csv, lacks a needed column, has an unknown one or no row, a needed value is empty,
            or the first needed column holds a value twice; names the file and the row (the header is row 1).
    """
    try:
        table = pd.read_csv(
            path, dtype=str, keep_default_na=False, skipinitialspace=True, encoding="utf-8-sig"
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a csv ({' '.join(str(error).split())})") from None
    table.columns = table.columns.str.strip()
    table = table.apply(lambda column: column.str.strip())
    for column in needed:
        if column not in table:
            raise ValueError(f"{path}: column {column!r} is missing; has {', '.join(table.columns)}")
    for column in table.columns:
        if column not in known:
            raise ValueError(f"{path}: unknown column {column!r}; known: {', '.join(known)}")
    if table.empty:
        raise ValueError(f"{path}: no row below the header")
    for column in needed:
        if (table[column] == "").any():
            row = int((table[column] == "").to_numpy().argmax()) + 2
            raise ValueError(f"{path}, row {row}: {column} is empty")
    key = table[needed[0]]
    if key.duplicated().any():
        row = int(key.duplicated().to_numpy().argmax())
        first = int((key == key.iloc[row]).to_numpy().argmax())
        raise ValueError(
            f"{path}, row {row + 2}: {needed[0]} {key.iloc[row]!r} stands in row {first + 2} already; ids are unique"
        )
    return table
