"""Strict checks of users' tables: errors name file and row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from histo_monai.data.tables.csv_rows import read_rows
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import check_name
from histo_monai.utils.storage.names import check_visible

_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


MISSING = frozenset(
    ("NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None", "NaT")
)
"""Texts that R, Excel, pandas and databases write for a missing value."""


def first_five(problems: Sequence[str]) -> str:
    """Up to five problems and the number of further ones, for a one-line error."""
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return "; ".join(re.sub(r"(?<!\.)\.$", "", problem) for problem in problems[:5]) + more


def read_table(
    path: Path,
    needed: Sequence[str],
    known: Sequence[str] | None = None,
    key: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Read a csv, on disk or in a zip, as stripped texts, indexed by line number.

    Args:
        needed: Required columns, with a value in every row.
        known: Allowed columns; None for any.
        key: Columns that identify a row; None for the first required one.

    Raises:
        InputError: The file is not a csv, lacks a required column, has an unknown one or no row, a required value is
            empty, or two rows have one key; names the file and the row (the header is row 1).
    """
    table = read_rows(path)
    for column in needed:
        if column not in table:
            raise InputError(
                f"{path}: column {column!r} is missing; has {', '.join(table.columns)}. Fix: add it."
            )
    for column in table.columns:
        if known is not None and column not in known:
            raise InputError(f"{path}: unknown column {column!r}. Fix: use {', '.join(known)}.")
    if table.empty:
        raise InputError(f"{path}: no row below the header. Fix: add rows.")
    for column in needed:
        if (table[column] == "").any():
            raise InputError(
                f"{path}, row {first_row(table[column] == '')}: {column} is empty. Fix: fill it."
            )
    check_key(path, table, list(needed[:1] if key is None else key))
    return table


def check_key(path: Path, table: pd.DataFrame, key: list[str]) -> None:
    """Refuse a table of `read_table` in which two rows have one key.

    Raises:
        InputError: Names the file and both rows.
    """
    if not key or not table.duplicated(key).any():
        return
    second = first_row(table.duplicated(key))
    same = (table[key] == table.loc[second, key]).all(axis=1)
    name = " ".join(f"{column} {table.loc[second, column]!r}" for column in key)
    raise InputError(f"{path}, row {second}: {name} is also in row {first_row(same)}. Fix: make ids unique.")


def first_row(wrong: pd.Series) -> int:
    """Number of the first row of a table of `read_table` for which `wrong` holds."""
    return int(wrong.index[wrong.to_numpy(dtype=bool)][0])


def check_names(path: Path, column: pd.Series) -> None:
    """Refuse texts in a column of `read_table` that cannot name a file; empty texts pass.

    Raises:
        InputError: Names the file and the row.
    """
    for row, name in column[column != ""].drop_duplicates().items():
        check_name(name, f"{path}, row {row}: {column.name}")


def check_texts(path: Path, column: pd.Series) -> None:
    """Refuse texts with invisible characters in a column of `read_table`.

    Raises:
        InputError: Names the file and the row.
    """
    for row, text in column[column != ""].drop_duplicates().items():
        check_visible(text, f"{path}, row {row}: {column.name}")


def check_classes(path: Path, column: pd.Series) -> None:
    """Refuse class names with invisible characters, and texts that mean a missing value elsewhere.

    Raises:
        InputError: Names the file and the row.
    """
    check_texts(path, column)
    wrong = column.isin(MISSING)
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{path}, row {row}: {column.name} is {column[row]!r}, which reads as missing. Fix: leave it empty if "
            "unknown, or rename the class."
        )


def read_numbers(
    path: Path, column: pd.Series, low: float, high: float, expected: str, *, whole: bool = False
) -> pd.Series:
    """Numbers in a column of `read_table` as float64; empty texts become NaN.

    Args:
        path: File of the table, for messages.
        column: Decimal numbers as texts, with optional point and exponent.
        expected: Description of valid values, for messages.
        whole: Whether to refuse fractions.

    Raises:
        InputError: A text is no number from `low` to `high`; names the file, the row and `expected`.
    """
    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    wrong = (column != "") & ~(column.str.fullmatch(_NUMBER) & numbers.between(low, high))
    if whole:
        wrong |= numbers.notna() & (numbers % 1 != 0)
    if wrong.any():
        row = first_row(wrong)
        raise InputError(f"{path}, row {row}: {column.name} is {column[row]!r}. Fix: write {expected}.")
    return numbers
