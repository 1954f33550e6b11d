"""The tables that datasets are turned into, and how a csv of somebody else is read: strictly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from histo_monai.errors import InputError
from histo_monai.storage import check_name
from histo_monai.tables.csv_rows import read_rows
from histo_monai.tables.stage_csv import read_stage_csv

_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"

SPLITS = ("train", "validation", "test")

CORPUS_COLUMNS = ("slide_id", "path", "patient_id", "mpp", "split")
"""Slides to pretrain on, one row each: `patient_id` empty where unknown, `mpp` missing where the file must tell it,
`split` empty where it is still to be drawn."""

SLIDE_COLUMNS = ("slide_id", "path", "patient_id", "mpp", "height_px", "width_px", "tissue_fraction", "split")
"""Surveyed slides of the corpus, one row each: `mpp` and size as the file tells them."""

CENTER_COLUMNS = ("slide_id", "y", "x", "split")
"""Places to pretrain on, one row each, in level-0 pixels."""

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
    "slide_mpp",
)
"""Labeled patches, one row each. A patch is either a whole image file (`path` names it, through a zip as if that were a
folder; `y` and `x` are missing) or a square of a slide (`path` is the slide's file, `y` and `x` are the center in
level-0 pixels, `mpp` the resolution to read at, `slide_mpp` that of level 0 where the file must not be asked for it).
Texts are empty and numbers missing where a dataset has none."""

WHOLE_SLIDE_COLUMNS = (
    *("slide_id", "path", "patient_id", "mpp", "label", "size", "split", "annotation", "exhaustive"),
)
"""Slides to map and to diagnose, one row each: `label` and `size` (of the largest metastasis) empty where unknown,
`mpp` missing where the file must tell it, `annotation` the file with its outlines, empty where it has none,
`exhaustive` whether these are all that is on it."""


def whole_slide_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows -> a table with `WHOLE_SLIDE_COLUMNS`, in the order given; it may hold none."""
    bare = {"patient_id": "", "mpp": None, "label": "", "size": "", "annotation": "", "exhaustive": True}
    full = [{**bare, **row, **{key: str(row.get(key, "")) for key in ("path", "annotation")}} for row in rows]
    return pd.DataFrame(full, columns=list(WHOLE_SLIDE_COLUMNS)).astype(
        {"mpp": "float64", "exhaustive": bool}
    )


def read_whole_slides(path: Path) -> pd.DataFrame:
    """Read a csv of `WHOLE_SLIDE_COLUMNS`, which the index stage writes.

    Raises:
        InputError: see `read_stage_csv`.
    """
    types = dict.fromkeys(WHOLE_SLIDE_COLUMNS, "str") | {"mpp": "float64", "exhaustive": "bool"}
    return read_stage_csv(path, types, stage="index", key=["slide_id"], among={"split": ("", *SPLITS)})


def read_surveyed_slides(path: Path) -> pd.DataFrame:
    """Read a csv of `SLIDE_COLUMNS`, which the index stage writes.

    Raises:
        InputError: see `read_stage_csv`; or a slide has no µm/px above 0.
    """
    numbers = dict.fromkeys(("mpp", "tissue_fraction"), "float64") | dict.fromkeys(
        ("height_px", "width_px"), "int64"
    )
    types = {column: numbers.get(column, "str") for column in SLIDE_COLUMNS}
    table = read_stage_csv(path, types, stage="index", key=["slide_id"], among={"split": SPLITS})
    if not (table["mpp"] > 0).all():
        slide_id = table.loc[~(table["mpp"] > 0), "slide_id"].iloc[0]
        raise InputError(f"{path}: slide {slide_id} has no µm/px above 0; run `dvc repro index` again")
    return table


def read_centers(path: Path) -> pd.DataFrame:
    """Read a csv of `CENTER_COLUMNS`, which the index stage writes.

    Raises:
        InputError: see `read_stage_csv`.
    """
    types = {"slide_id": "str", "y": "int64", "x": "int64", "split": "str"}
    return read_stage_csv(path, types, stage="index", among={"split": SPLITS})


def corpus_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows -> a table with `CORPUS_COLUMNS`, in the order given.

    Raises:
        InputError: there is no row, or a slide_id comes twice or cannot be the name of a file.
    """
    if not rows:
        raise InputError("the corpus has no slide; name at least two, so that one can be kept for validation")
    full = [{"patient_id": "", "mpp": None, "split": "", **row} for row in rows]
    table = pd.DataFrame(full, columns=list(CORPUS_COLUMNS)).astype({"mpp": "float64"})
    for slide_id, path in zip(table["slide_id"], table["path"], strict=True):
        check_name(slide_id, f"{path}: slide_id")
    twice = table[table["slide_id"].duplicated(keep=False)]
    if len(twice):
        first, second = twice["path"].iloc[:2]
        raise InputError(
            f"slide_id {twice['slide_id'].iloc[0]!r} is given twice, for {first} and {second}; ids are unique"
        )
    return table


def first_five(problems: Sequence[str]) -> str:
    """Up to five problems and how many more there are, for an error of one line."""
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return "; ".join(problems[:5]) + more


def read_table(
    path: Path,
    needed: Sequence[str],
    known: Sequence[str] | None = None,
    key: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Read a csv, on disk or in a zip, as text: every value a stripped `str`, empty where nothing stands.

    Args:
        path: the csv.
        needed: columns that must be there, with a value in every row.
        known: columns that may be there; None for any.
        key: columns that together name a row; None for the first needed one.

    Returns:
        Rows under the numbers of their lines, see `csv_rows.read_rows`.

    Raises:
        InputError: the file is not a csv, lacks a needed column, has an unknown one or no row, a needed value is empty,
            or two rows have one key; names the file and the row, which is the line in it (the header is row 1).
    """
    table = read_rows(path)
    for column in needed:
        if column not in table:
            raise InputError(f"{path}: column {column!r} is missing; has {', '.join(table.columns)}")
    for column in table.columns:
        if known is not None and column not in known:
            raise InputError(f"{path}: unknown column {column!r}; known: {', '.join(known)}")
    if table.empty:
        raise InputError(f"{path}: no row below the header")
    for column in needed:
        if (table[column] == "").any():
            raise InputError(f"{path}, row {first_row(table[column] == '')}: {column} is empty")
    _check_key(path, table, list(needed[:1] if key is None else key))
    return table


def _check_key(path: Path, table: pd.DataFrame, key: list[str]) -> None:
    if not key or not table.duplicated(key).any():
        return
    second = first_row(table.duplicated(key))
    same = (table[key] == table.loc[second, key]).all(axis=1)
    name = " ".join(f"{column} {table.loc[second, column]!r}" for column in key)
    raise InputError(f"{path}, row {second}: {name} stands in row {first_row(same)} already; ids are unique")


def first_row(wrong: pd.Series) -> int:
    """Number of the first row of a table of `read_table` for which `wrong` holds."""
    return int(wrong.index[wrong.to_numpy(dtype=bool)][0])


def check_names(path: Path, column: pd.Series) -> None:
    """Refuse a text of a column of `read_table` that cannot name a file; an empty one is none.

    Raises:
        InputError: see `storage.check_name`; names the file and the row.
    """
    for row, name in column[column != ""].drop_duplicates().items():
        check_name(name, f"{path}, row {row}: {column.name}")


def read_numbers(
    path: Path, column: pd.Series, low: float, high: float, expected: str, *, whole: bool = False
) -> pd.Series:
    """Texts of a column of `read_table` -> float64, NaN where nothing stands.

    Args:
        path: of the table, for messages.
        column: the texts: decimal digits, with a point and an exponent where there is one.
        low: least number.
        high: largest number.
        expected: what the column holds, for messages.
        whole: refuse fractions.

    Raises:
        InputError: a text is no such number from `low` to `high`; names the file, the row and what was `expected`.
    """
    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    wrong = (column != "") & ~(column.str.fullmatch(_NUMBER) & numbers.between(low, high))
    if whole:
        wrong |= numbers.notna() & (numbers % 1 != 0)
    if wrong.any():
        row = first_row(wrong)
        raise InputError(f"{path}, row {row}: {column.name} is {column[row]!r}; expected {expected}")
    return numbers
