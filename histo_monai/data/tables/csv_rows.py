"""Strict reader of users' csv files -> texts, indexed by line number."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from histo_monai.utils.errors import InputError
from histo_monai.utils.files.trees import read_bytes

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SEPARATOR_IS_A_COMMA = "sep=,"
"""First line that states the separator to Excel."""
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def read_rows(path: Path) -> pd.DataFrame:
    """Read a csv, on disk or in a zip: UTF-8, separated by commas, each row as long as the header.

    Returns:
        Stripped texts, empty for empty values. The index holds the line number in the file at which a row begins, for
        messages. The first line is 1; blank lines and line breaks inside quotes count.

    Raises:
        InputError: The file is no such csv; names the file and the row.
    """
    rows = _records(path, _text(path, read_bytes(path)))
    _, header = next(rows, (0, []))
    if ",".join(header) == _SEPARATOR_IS_A_COMMA:
        _, header = next(rows, (0, []))
    if not header:
        raise InputError(f"{path}: not a csv (the file is empty). Fix: write a header and rows.")
    _check_header(path, header)
    numbers, values = [], []
    for number, record in rows:
        if len(record) != len(header):
            raise InputError(
                f"{path}, row {number}: {len(record)} values, but the header names {len(header)} columns. "
                "Fix: remove commas at the end, and put quotes around a value that holds a comma."
            )
        numbers.append(number)
        values.append(record)
    return pd.DataFrame(values, index=pd.Index(numbers, dtype="int64"), columns=header, dtype=str)


def _text(path: Path, data: bytes) -> str:
    if data.startswith(_UTF16):
        raise InputError(f"{path}: is encoded in UTF-16. Fix: save it as csv in UTF-8 (Excel: CSV UTF-8).")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, row {row}: not UTF-8 ({_odd_bytes(data, error.start)}). Fix: save it as csv in UTF-8 (Excel: CSV "
            "UTF-8, or iconv -f WINDOWS-1252 -t UTF-8)."
        ) from None
    if "\0" in text:
        row = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{path}, row {row}: holds a NUL character. Fix: save it as csv in UTF-8.")
    return text


def _odd_bytes(data: bytes, place: int) -> str:
    """The first byte that is not UTF-8, and the value that contains it, decoded with Windows code page 1252."""
    start = max(data.rfind(mark, 0, place) for mark in (b",", b";", b"\t", b"\n")) + 1
    value = re.split(rb"[,;\t\r\n]", data[start : place + 40])[0]
    shown = value.decode("cp1252", "replace").strip()
    return f"byte 0x{data[place]:02x}; {shown!r} if it is of Windows' code page 1252"


def _records(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Stripped rows that are not blank, each with the number of its first line."""
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    number = 1
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{path}, row {number}: not a csv ({error}). Fix: correct the row.") from None
        stripped = [value.strip() for value in record]
        if stripped not in ([], [""]):
            yield number, stripped
        number = reader.line_num + 1


def _check_header(path: Path, header: list[str]) -> None:
    for separator, name in _OTHER_SEPARATORS.items():
        if len(header) == 1 and (separator in header[0] or header == [f"sep={separator}".strip()]):
            raise InputError(f"{path}: is separated by {name} ({separator!r}). Fix: save it with commas.")
    if "" in header:
        raise InputError(
            f"{path}: column {header.index('') + 1} of {len(header)} has no name. "
            "Fix: name it, or remove commas at the end of every row."
        )
    columns = pd.Index(header)
    if not columns.is_unique:
        raise InputError(
            f"{path}: two columns are named {columns[columns.duplicated()][0]!r}. Fix: remove one."
        )
