"""A csv -> values as written in the file; the only module in which pandas reads tables.

By default, pandas takes ids such as NA, None or null for missing values, and 007 or 1e5 for numbers.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.io.parsers import TextFileReader

from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import InputFileError, read_bytes

_LIMIT = 2**34


def parse_csv(content: bytes, **options: Any) -> pd.DataFrame:
    """The table in a csv; only texts in `options["na_values"]` count as missing."""
    table: pd.DataFrame = pd.read_csv(io.BytesIO(content), keep_default_na=False, **options)
    return table


def csv_pieces(content: bytes, num_rows: int, **options: Any) -> TextFileReader:
    """The table in a csv, as of `parse_csv`, in successive tables of `num_rows` rows."""
    return pd.read_csv(io.BytesIO(content), keep_default_na=False, chunksize=num_rows, **options)


def read_varied_csv(path: Path, texts: Sequence[str] = (), *, stage: str) -> pd.DataFrame:
    """Read a table that a stage wrote with columns that depend on the run, such as its metrics.

    Args:
        texts: text columns, if present: their values do not change, and empty cells are empty texts. pandas infers
            the types of other columns, in which only empty cells are missing values.
        stage: the stage that wrote the table, for messages.

    Raises:
        InputError: the file is missing, is no table, or was cut off.
    """
    again = f"run `dvc repro {stage}` again"
    options = {"dtype": dict.fromkeys(texts, "str"), "index_col": False, "low_memory": False}
    content = stage_content(path, stage)
    try:
        with warnings.catch_warnings(action="error"):
            table = parse_csv(content, na_values=[""], **options)
    except (ValueError, OverflowError, Warning) as error:
        what = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: not the table that the stage writes ({what}). Fix: {again}.") from None
    return table.fillna({column: "" for column in texts if column in table})


def read_texts(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read some columns of a csv as texts, empty cells as empty texts; ignores other columns.

    Raises:
        InputError: a column is missing, or the file cannot be read as a csv.
    """
    content = read_bytes(path, _LIMIT)
    try:
        table = parse_csv(content, usecols=list(columns), dtype=str)
    except ValueError as error:
        raise InputError(
            f"{path}: not a csv with the columns {', '.join(columns)} ({' '.join(str(error).split())})"
        ) from None
    return table[list(columns)]


def stage_content(path: Path, stage: str) -> bytes:
    """The bytes of a table that a stage wrote, whole rows.

    Raises:
        InputError: the file is missing, cannot be read, or was cut off.
    """
    if not path.exists():
        raise InputError(f"{path}: not found. Fix: run `dvc repro {stage}`.")
    try:
        content = read_bytes(path, _LIMIT)
    except InputFileError as error:
        raise InputError(f"{error.problem}. Fix: run `dvc repro {stage}` again.") from None
    if not content.endswith(b"\n"):
        what = "its last row is cut off" if content else "it is empty"
        raise InputError(f"{path}: incomplete ({what}). Fix: run `dvc repro {stage}` again.")
    return content
