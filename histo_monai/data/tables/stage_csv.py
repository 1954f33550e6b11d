"""Strict reader of stages' csv files -> typed columns; refuses edited or incomplete files."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.texts import SharedTexts, come_again
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.csv_values import csv_pieces, parse_csv, stage_content
from histo_monai.utils.storage import check_name

_PIECE_ROWS = 2**16


def read_stage_csv(
    path: Path,
    types: Mapping[str, str],
    *,
    stage: str,
    key: Sequence[str] = (),
    among: Mapping[str, Sequence[str]] | None = None,
    more: bool = False,
) -> pd.DataFrame:
    """Read a table that a stage wrote; it may have no row.

    Args:
        types: Columns in order -> type: "str", empty for no value; "float64", NaN for no value; "int64", "int32" or
            "bool", with a value in every row.
        stage: Name of the writing stage, for messages.
        key: Columns that identify a row.
        among: Column -> allowed texts.
        more: Whether other columns of any type follow.

    Raises:
        InputError: The file is missing, is no such table, is cut off, or has an infinite number, a text not in `among`,
            a repeated key, or a `slide_id` that cannot name a file. Names the file and the row (the header is row 1).
    """
    again = f"run `dvc repro {stage}` again"
    table = _parse(path, stage_content(path, stage), types, more, again)
    for column, kind in types.items():
        if kind == "float64":
            refuse_rows(path, np.isinf(table[column]), f"{column}: a finite number", again)
    for column, known in (among or {}).items():
        refuse_rows(path, ~table[column].isin(known), f"{column}: one of {', '.join(known)}", again)
    if key:
        name = " ".join(key)
        refuse_rows(path, come_again(table, key), f"{name}: one that no other row has", again)
    if "slide_id" in types:
        for slide_id in table["slide_id"].unique():
            if slide_id:
                check_name(slide_id, f"{path}: slide_id")
    return table


def _parse(path: Path, content: bytes, types: Mapping[str, str], more: bool, again: str) -> pd.DataFrame:
    header = content[: content.index(b"\n")].decode(errors="replace").strip("\r").split(",")
    known = header[: len(types)] if more else header
    if known != list(types):
        missing = [column for column in types if column not in header]
        what = f"it has no column {missing[0]!r}" if missing else f"its columns are not {', '.join(types)}"
        raise InputError(f"{path}: not the table that the stage writes ({what}). Fix: {again}.")
    numbers = [column for column, kind in types.items() if kind == "float64"]
    options: dict[str, Any] = {
        "dtype": dict(types),
        "index_col": False,
        "low_memory": False,
        "na_values": {column: [""] for column in numbers},
    }
    try:
        with warnings.catch_warnings(action="error"):  # Rows longer than the header, infinite integers.
            if more:  # Pandas infers types of other columns from all rows.
                return parse_csv(content, **options)
            with csv_pieces(content, _PIECE_ROWS, **options) as pieces:
                return _joined(pieces, types, content.count(b"\n"))
    except (ValueError, OverflowError, Warning) as error:
        what = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: not the table that the stage writes ({what}). Fix: {again}.") from None


def _joined(pieces: Iterable[pd.DataFrame], types: Mapping[str, str], most_rows: int) -> pd.DataFrame:
    """One table from pieces, allocated once; the memory of a piece is reused for the next."""
    columns = {name: np.empty(most_rows, object if kind == "str" else kind) for name, kind in types.items()}
    shared, num_rows = SharedTexts(), 0
    for piece in pieces:
        for name, kind in types.items():
            values = shared.of(piece[name]) if kind == "str" else piece[name]
            columns[name][num_rows : num_rows + len(piece)] = values.to_numpy()
        num_rows += len(piece)
    return pd.DataFrame(
        {name: pd.Series(columns[name][:num_rows], dtype=kind, copy=False) for name, kind in types.items()},
        copy=False,
    )


def refuse_rows(path: Path, wrong: pd.Series | NDArray[np.bool_], expected: str, again: str) -> None:
    """Refuse a stage's table if a row is `wrong`.

    Raises:
        InputError: Names the file, the first wrong row, `expected`, and the command in `again`.
    """
    if wrong.any():
        row = int(np.asarray(wrong).argmax()) + 2
        raise InputError(f"{path}, row {row}: expected {expected}. Fix: {again}.")
