"""A csv of somebody else, read strictly: what is not what its column holds is named by file and row."""

from __future__ import annotations

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
"""What R, Excel, pandas and databases write where a value is missing."""


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
    check_key(path, table, list(needed[:1] if key is None else key))
    return table


def check_key(path: Path, table: pd.DataFrame, key: list[str]) -> None:
    """Refuse a table of `read_table` in which two rows have one key.

    Raises:
        InputError: names the file and both rows.
    """
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


def check_texts(path: Path, column: pd.Series) -> None:
    """Refuse a text of a column of `read_table` that holds what nobody can see.

    Raises:
        InputError: see `utils.storage.names.check_visible`; names the file and the row.
    """
    for row, text in column[column != ""].drop_duplicates().items():
        check_visible(text, f"{path}, row {row}: {column.name}")


def check_classes(path: Path, column: pd.Series) -> None:
    """Refuse a name of a class that cannot be seen, or that other programs write where a value is missing.

    Raises:
        InputError: names the file and the row.
    """
    check_texts(path, column)
    wrong = column.isin(MISSING)
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{path}, row {row}: {column.name} is {column[row]!r}, which reads as missing; leave it empty where it is "
            "unknown, or name the class in another way"
        )


def read_numbers(
    path: Path, column: pd.Series, low: float, high: float, expected: str, *, whole: bool = False
) -> pd.Series:
    """Texts of a column of `read_table` -> float64, NaN where nothing stands.

    Args:
        path: of the table, for messages.
        column: the texts: decimal digits, with a point and an exponent where there is one.
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
