"""Labels that were saved on the labeling page -> patches.csv of the own data; earlier labels stay."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from histo_monai.data.tables.csv_rows import read_rows
from histo_monai.data.tables.manifests import check_classes, first_row, read_numbers, read_table
from histo_monai.pipeline import paths
from histo_monai.reports.labeling.answers import LABEL, NO_LABELS, PLACE, SUFFIX, lasting
from histo_monai.slides.annotations import BOUNDS
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import OutputError, whole_file

SUGGESTIONS = paths.DATA / "suggestions"
"""Default outputs of `suggest`, their pages, and files of answers."""
ADDED = (*PLACE, "label", "labeled_by", "labeled_at")
"""Columns of patches.csv that a label fills."""
_NEEDED = (*PLACE, "answer")


class Merged(NamedTuple):
    """What came of the files: labels added, labels that were there already, and answers without a label."""

    added: int
    known: int
    without_label: int


class _Answer(NamedTuple):
    """An answer to a square.

    Attributes:
        mpp, side_px: of the square; NaN where the table does not state it.
        label: empty for an answer without a label.
        text: as the file has it.
        where: file and row.
    """

    mpp: float
    side_px: float
    label: str
    text: str
    where: str

    def is_of(self, other: _Answer) -> bool:
        """Whether both are of one square; their places are equal. What a table does not state may be anything."""
        pairs = ((self.mpp, other.mpp), (self.side_px, other.side_px))
        return all(one != one or two != two or abs(one - two) < 1e-6 * one for one, two in pairs)


_Places = defaultdict[tuple[str, float, float], list[_Answer]]


def check_table(into: Path) -> pd.DataFrame:
    """The table that labels are added to; empty if it is missing.

    Raises:
        InputError: It is a link, or holds scores or coordinates of QuPath's origin.
    """
    if into.is_symlink():
        raise InputError(
            f"{into}: is a link to {os.readlink(into)}. Fix: run `dvc unprotect {into}`, or name the table by --into."
        )
    before = read_rows(into) if into.exists() else pd.DataFrame(columns=list(ADDED), dtype=str)
    if "score" in before and (before["score"] != "").any():
        raise InputError(
            f"{into}: has scores, and one table has labels or scores. Fix: name another by --into."
        )
    if "origin" in before and (before["origin"] == BOUNDS).any():
        raise InputError(
            f"{into}: has rows of the origin {BOUNDS}, which cannot be compared with the page's. "
            "Fix: name another table by --into, and add its rows."
        )
    return before


def merge_labels(files: Sequence[Path], into: Path) -> Merged:
    """Add the labels of files of the page to patches.csv, all or none; the file is made if it is missing.

    Raises:
        InputError: A file is none of the page's, or two answers to one square differ; both are named.
        OutputError: patches.csv cannot be written, or another process is adding labels to it.
    """
    with _alone(into):
        before = check_table(into)
        known: _Places = defaultdict(list)
        for place, answer in _answers_of(into, before):
            known[place].append(answer)
        fresh: list[dict[str, str]] = []
        num_known = num_without = 0
        for path in files:
            table = _read(path)
            for (place, answer), row in zip(_answers_of(path, table), table.to_dict("records"), strict=True):
                same = [other for other in known[place] if other.is_of(answer)]
                _check_equal(same, answer)
                num_without += not answer.label
                num_known += bool(same and answer.label)
                if not same:
                    known[place].append(answer)
                if not same and answer.label:
                    fresh.append({name: str(row.get(name, "")) for name in ADDED})
        if fresh:
            columns = [*before.columns, *(name for name in ADDED if name not in before.columns)]
            whole = pd.concat([before, pd.DataFrame(fresh, dtype=str)], ignore_index=True)
            with whole_file(into) as draft:
                whole.reindex(columns=columns).fillna("").to_csv(draft, index=False)
    return Merged(len(fresh), num_known, num_without)


def answer_files() -> list[Path]:
    """Files of answers that `label --serve` has saved."""
    return sorted(SUGGESTIONS.glob(f"*{SUFFIX}"))


def answered_without_label() -> pd.DataFrame:
    """Squares of `answer_files` with an answer but without a label: `PLACE`, with numbers."""
    tables = [pd.DataFrame(columns=list(PLACE))]
    for path in answer_files():
        table = _read(path)
        rows = table[table["answer"] != LABEL]
        numbers = {name: read_numbers(path, rows[name], 0.0, 2**31, "a number") for name in PLACE[1:]}
        tables.append(rows[["slide_id"]].assign(**numbers))
    return pd.concat(tables, ignore_index=True)


@contextlib.contextmanager
def _alone(into: Path) -> Iterator[None]:
    """Only one process at a time adds labels to tables of a folder."""
    into.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(into.parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                f"{into}: another process adds labels. Fix: wait for it, then try again"
            ) from None
        yield
    finally:
        os.close(folder)


def _check_equal(same: Sequence[_Answer], answer: _Answer) -> None:
    for other in same:
        if other.label != answer.label:
            raise InputError(
                f"{other.where} ({other.text}) and {answer.where} ({answer.text}): two answers to one square. "
                "Fix: correct or remove one of them."
            )


def _read(path: Path) -> pd.DataFrame:
    """Rows of a file of the page that count."""
    table = lasting(path, read_table(path, needed=_NEEDED, key=()))
    wrong = ~table["answer"].isin([LABEL, *NO_LABELS])
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{path}, row {row}: answer is {table['answer'][row]!r}. Fix: write {LABEL}, {' or '.join(NO_LABELS)}."
        )
    table = table.reindex(
        columns=[*table.columns, *(name for name in ADDED if name not in table)], fill_value=""
    )
    empty = (table["answer"] == LABEL) & (table["label"] == "")
    if empty.any():
        raise InputError(f"{path}, row {first_row(empty)}: label is empty. Fix: fill it.")
    check_classes(path, table["label"])
    return table


def _answers_of(path: Path, table: pd.DataFrame) -> list[tuple[tuple[str, float, float], _Answer]]:
    """Place and answer of the rows that are squares of slides; places are compared to a hundredth of a pixel."""
    if not {"slide_id", "y", "x"} <= set(table.columns):
        return []
    full = table.reindex(
        columns=[*table.columns, *{"mpp", "side_px", "label"} - {*table.columns}], fill_value=""
    )
    y, x = (
        read_numbers(path, full[name], 0.0, 2**31, "level-0 pixels, 0 or more").round(2)
        for name in ("y", "x")
    )
    mpp = read_numbers(path, full["mpp"], 0.05, 64.0, "µm/px, 0.05 to 64")
    side = read_numbers(path, full["side_px"], 1, 2**20, "a whole number of pixels, 1 or more", whole=True)
    texts = full["label"].where(full["label"] != "", full.get("answer", ""))
    rows = zip(full.index, full["slide_id"], y, x, mpp, side, full["label"], texts, strict=True)
    return [
        ((slide, at_y, at_x), _Answer(of_mpp, of_side, label, text, f"{path}, row {number}"))
        for number, slide, at_y, at_x, of_mpp, of_side, label, text in rows
        if slide
    ]
