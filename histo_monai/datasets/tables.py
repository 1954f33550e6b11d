"""The tables that datasets are turned into, and how a csv of somebody else is read: strictly."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from histo_monai.datasets.files import read_bytes

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
        ValueError: the file is missing or is another.
    """
    texts = [name for name in WHOLE_SLIDE_COLUMNS if name not in ("mpp", "exhaustive")]
    try:
        table = pd.read_csv(
            path, dtype=dict.fromkeys(texts, str), keep_default_na=False, na_values={"mpp": [""]}
        )
        return table[list(WHOLE_SLIDE_COLUMNS)].astype({"mpp": "float64", "exhaustive": bool})
    except (OSError, ValueError, KeyError):
        raise ValueError(f"{path}: missing, or not a table of slides; run `dvc repro index` first") from None


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

    Raises:
        ValueError: the file is not a csv, lacks a needed column, has an unknown one or no row, a needed value is empty,
            or two rows have one key; names the file and the row (the header is row 1).
    """
    try:
        table = pd.read_csv(
            io.BytesIO(read_bytes(path)),
            dtype=str,
            keep_default_na=False,
            skipinitialspace=True,
            encoding="utf-8-sig",
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a csv ({' '.join(str(error).split())})") from None
    table.columns = table.columns.str.strip()
    table = table.apply(lambda column: column.str.strip())
    for column in needed:
        if column not in table:
            raise ValueError(f"{path}: column {column!r} is missing; has {', '.join(table.columns)}")
    for column in table.columns:
        if known is not None and column not in known:
            raise ValueError(f"{path}: unknown column {column!r}; known: {', '.join(known)}")
    if table.empty:
        raise ValueError(f"{path}: no row below the header")
    for column in needed:
        if (table[column] == "").any():
            raise ValueError(f"{path}, row {first_row(table[column] == '')}: {column} is empty")
    _check_key(path, table, list(needed[:1] if key is None else key))
    return table


def _check_key(path: Path, table: pd.DataFrame, key: list[str]) -> None:
    if not key or not table.duplicated(key).any():
        return
    second = table.duplicated(key).to_numpy().argmax()
    same = (table[key] == table[key].iloc[second]).all(axis=1)
    name = " ".join(f"{column} {table[column].iloc[second]!r}" for column in key)
    raise ValueError(
        f"{path}, row {second + 2}: {name} stands in row {first_row(same)} already; ids are unique"
    )


def first_row(wrong: pd.Series) -> int:
    """Number of the first row of a csv for which `wrong` holds; the header is row 1."""
    return int(wrong.to_numpy(dtype=bool).argmax()) + 2


def read_numbers(path: Path, column: pd.Series, low: float, high: float, expected: str) -> pd.Series:
    """Texts of a column of `read_table` -> float64, NaN where nothing stands.

    Raises:
        ValueError: a text is no number from `low` to `high`; names the file, the row and what was `expected`.
    """
    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    wrong = (column != "") & ~numbers.between(low, high)
    if wrong.any():
        row = first_row(wrong)
        raise ValueError(f"{path}, row {row}: {column.name} is {column.iloc[row - 2]!r}; expected {expected}")
    return numbers
