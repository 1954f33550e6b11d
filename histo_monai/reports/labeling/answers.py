"""Answers of a served labeling page, in a csv that only grows: each is on the disk before the page shows it."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from histo_monai.data.tables.manifests import check_classes, first_row, read_numbers, read_table
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import OutputError, parse_json
from histo_monai.utils.storage.errors import disk_full_in_words
from histo_monai.utils.storage.shapes import COUNT

_LOG = logging.getLogger(__name__)

LABEL, NO_LABELS = "label", ("cannot tell", "artefact")
"""Answers of the page."""
PLACE = ("slide_id", "y", "x", "mpp", "side_px")
"""Columns that identify a square."""
CORRECTS = "corrects"
"""Column of the label that a square had on the page; empty for a square without a label."""
SUFFIX = ".answers.csv"
_UNDONE = "undone"
"""Answer of a row that takes back the last answer to its square."""
_STEP = "step"
"""Rows of one step were given, or taken back, together."""
_COLUMNS = (*PLACE, "label", "answer", "labeled_by", "labeled_at", _STEP, CORRECTS)
_OLD_COLUMNS = _COLUMNS[:-1]
"""Of files without corrections."""
_SHAPE = {"known": COUNT, "undo?": bool, "numbers?": [COUNT], "label?": str, "kind?": str, "by?": str}


def lasting(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Rows that count: all of a file that the page saved; of a file of `Answers` the last of each square not undone.

    Raises:
        InputError: A row undoes nothing.
    """
    if _STEP not in table:
        return table
    rows: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    places = table[list(PLACE)].itertuples(index=False, name=None)
    for number, (place, answer) in enumerate(zip(places, table["answer"], strict=True)):
        if answer != _UNDONE:
            rows[place].append(number)
        elif rows[place]:
            rows[place].pop()
        else:
            raise InputError(f"{path}, row {table.index[number]}: undoes nothing. Fix: remove the row.")
    return table.iloc[sorted(of_square[-1] for of_square in rows.values() if of_square)]


class Answers:
    """Answers to the squares of a page; only one process at a time may have those of a file.

    Args:
        path: The file; it is made by the first answer. A last line that a crash has cut is removed.
        squares: The page's, with `PLACE`; a labeled one with `label`.

    Raises:
        InputError: The file is none of this page.
        OutputError: It is a link or no file.
    """

    def __init__(self, path: Path, squares: Sequence[Mapping[str, Any]]) -> None:
        self.path, self._squares, self._lock = path, squares, threading.Lock()
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise OutputError(f"{path}: is a link or no regular file. Fix: move it away")
        self._steps: list[dict[str, Any]] = []
        self._last_step = 0  # in the file, of which the user may have removed rows
        self._columns, self._size = _without_cut_line(path)
        if CORRECTS not in self._columns and any(square.get("label") for square in squares):
            raise InputError(
                f"{path}: has no column {CORRECTS}. Fix: move it away, and label its squares again."
            )
        if self._size:
            self._steps = self._read()

    @property
    def num_answered(self) -> int:
        """Number of squares with an answer."""
        return len({number for step in self._lasting() for number in step["numbers"]})

    def reply(self, message: bytes) -> bytes:
        """Save the answer of a message; JSON of the steps that the page does not know.

        An answer is not saved where a step unknown to the page concerns its squares: the page shows that step first.

        Args:
            message: JSON with `known`, the number of steps that the page has; with `numbers`, `kind`, `label`, `by` it
                gives an answer to these squares, with `undo` it takes back the last step.

        Raises:
            InputError: The message is none of the page, or another program has changed the file.
            OSError: The file cannot be written; it is unchanged.
        """
        asked = parse_json(message.decode("utf-8", "replace"), "message", "reload the page", _SHAPE)
        with self._lock:
            unknown = self._steps[asked["known"] :]
            step = self._step(asked)
            others = {number for one in unknown for number in one["numbers"]}
            is_saved = False
            if step is not None and not (unknown if asked.get("undo") else others & set(step["numbers"])):
                self._append(step)
                unknown.append(step)
                is_saved = True
        return json.dumps({"steps": unknown, "is_saved": is_saved}).encode()

    def _step(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The step that a message asks for; None if it asks for none, or there is nothing to undo."""
        by = "".join(filter(str.isprintable, " ".join(asked.get("by", "").split())))[:60]
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if asked.get("undo"):
            last = self._lasting()[-1:]
            return last[0] | {"kind": _UNDONE, "label": "", "by": by, "at": at} if last else None
        if "numbers" not in asked:
            return None
        numbers, kind, label = asked["numbers"], asked.get("kind"), asked.get("label", "").strip()
        is_known = kind == LABEL if label else kind in NO_LABELS
        if not numbers or len(set(numbers)) < len(numbers) or max(numbers) >= len(self._squares):
            raise InputError("message: no squares of this page. Fix: reload it")
        if not is_known or len(label) > 60:
            raise InputError(f"message: {kind} {label[:60]!r} is no answer. Fix: reload the page")
        check_classes(Path("message"), pd.Series([label], name="class"))
        return {"numbers": numbers, "kind": kind, "label": label, "by": by, "at": at}

    def _lasting(self) -> list[dict[str, Any]]:
        """Steps that were not undone."""
        steps: list[dict[str, Any]] = []
        for step in self._steps:
            if step["kind"] == _UNDONE:
                steps.pop()
            else:
                steps.append(step)
        return steps

    def _append(self, step: dict[str, Any]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._size:
            writer.writerow(self._columns)
        about = [step[name] for name in ("label", "kind", "by", "at")]
        for number in step["numbers"]:
            square = self._squares[number]
            row = [*(square[name] for name in PLACE), *about, self._last_step + 1, square.get("label", "")]
            writer.writerow(row[: len(self._columns)])
        content = text.getvalue().encode()
        with disk_full_in_words(self.path, len(content)):
            _append(self.path, content, self._size)
        self._size += len(content)
        self._last_step += 1
        self._steps.append(step)

    def _read(self) -> list[dict[str, Any]]:
        table = read_table(self.path, needed=(*PLACE, "answer", _STEP), key=())
        lasting(self.path, table)
        numbers = {_place(square): number for number, square in enumerate(self._squares)}
        for name in PLACE[1:]:
            table[name] = read_numbers(self.path, table[name], 0.0, 2**31, "a number, 0 or more")
        table["number"] = [numbers.get(_place(row), -1) for row in table.to_dict("records")]
        if (table["number"] < 0).any():
            row = first_row(table["number"] < 0)
            raise InputError(f"{self.path}, row {row}: is no square of this page. Fix: move the file away.")
        steps_of = read_numbers(self.path, table[_STEP], 1, 2**31, "a whole number, 1 or more", whole=True)
        self._last_step = int(steps_of.max())
        table = table.rename(columns={"answer": "kind", "labeled_by": "by", "labeled_at": "at"})
        steps = (rows for _, rows in table.groupby(_STEP, sort=False))
        about = ("kind", "label", "by", "at")
        return [
            {name: rows[name].iloc[0] for name in about} | {"numbers": rows["number"].tolist()}
            for rows in steps
        ]


def _place(square: Mapping[Any, Any]) -> tuple[Any, ...]:
    slide_id, *numbers = (square[name] for name in PLACE)
    return (str(slide_id), *(round(float(number), 6) for number in numbers))


def _without_cut_line(path: Path) -> tuple[tuple[str, ...], int]:
    """Columns and bytes of the file, 0 without a row, after a last line that a crash has cut is removed."""
    content = path.read_bytes() if path.exists() else b""
    size = content.rfind(b"\n") + 1
    for columns in (_COLUMNS, _OLD_COLUMNS):
        header = f"{','.join(columns)}\n".encode()
        if content.startswith(header) and size > len(header):
            if size < len(content):
                _LOG.warning("label: %s: the last line has no end and was removed: %r", path, content[size:])
                os.truncate(path, size)
            return columns, size
        if content.startswith(header) or (content and header.startswith(content)):
            os.truncate(path, 0)
            return _COLUMNS, 0
    if content:
        raise InputError(f"{path}: is no file of answers of `label --serve`. Fix: move it away.")
    return _COLUMNS, 0


def _append(path: Path, content: bytes, size: int) -> None:
    """Add to a file of this size, to the disk; after an error the file is as before."""
    is_new = not path.exists()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        if os.fstat(handle).st_size != size:
            raise InputError(
                f"{path}: another program has changed it. Fix: end the server, and start it again"
            )
        try:
            written = os.write(handle, content)
            if written < len(content):
                raise OSError(f"{path}: {len(content)} requested and {written} written")
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)
    if is_new:
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
