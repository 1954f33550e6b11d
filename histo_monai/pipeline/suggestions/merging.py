"""Labels that were saved on the labeling page -> patches.csv of the own data; earlier labels are not lost."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from histo_monai.data.tables.csv_rows import read_rows
from histo_monai.data.tables.manifests import check_classes, first_row, read_numbers, read_table
from histo_monai.pipeline import paths
from histo_monai.reports.labeling.answers import CORRECTS, LABEL, NO_LABELS, PLACE, SUFFIX, lasting
from histo_monai.slides.annotations import BOUNDS
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import OutputError, parse_json, whole_file

_LOG = logging.getLogger(__name__)

SUGGESTIONS = paths.DATA / "suggestions"
"""Default outputs of `suggest`, their pages, and files of answers."""
_FACTS = ("label", "labeled_by", "labeled_at")
ADDED = (*PLACE, *_FACTS)
"""Columns of patches.csv that a label fills."""
_EARLIER = "corrected_from"
"""Column of patches.csv with the earlier labels of a row, JSON, the first one first."""
_NEEDED = (*PLACE, "answer")


class Merged(NamedTuple):
    """What came of the files: labels added, labels that were there already, answers without a label, corrections."""

    added: int
    known: int
    without_label: int
    corrected: int


class _Answer(NamedTuple):
    """An answer to a square.

    Attributes:
        mpp, side_px: of the square; NaN where the table does not state it.
        where: file and row.
        row: as the file has it; of patches.csv, as it will be written.
    """

    mpp: float
    side_px: float
    where: str
    row: dict[Any, Any]

    @property
    def label(self) -> str:
        """Empty for an answer without a label."""
        return str(self.row.get("label", ""))

    @property
    def corrects(self) -> str:
        """The label that the page showed for the square; empty for a square without a label."""
        return str(self.row.get(CORRECTS, ""))

    @property
    def at(self) -> str:
        """When it was given."""
        return str(self.row.get("labeled_at", ""))

    def __str__(self) -> str:
        return f"{self.where} ({self.label or self.row.get('answer', '')})"

    def earlier(self) -> list[dict[str, str]]:
        """Labels of a row of patches.csv before it was corrected.

        Raises:
            InputError: The column is not as it was written.
        """
        cell = self.row.get(_EARLIER) or "[]"
        shape = {"labels": [dict.fromkeys(_FACTS, str)]}
        where = f"{self.where}, column {_EARLIER}"
        labels: list[dict[str, str]] = parse_json(f'{{"labels": {cell}}}', where, "empty it", shape)["labels"]
        return labels

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
        rows = before.to_dict("records")
        known: _Places = defaultdict(list)
        for place, answer in _answers_of(into, before, rows):
            known[place].append(answer)
        tables = [(path, _read(path)) for path in files]
        answers = [
            one for path, table in tables for one in _answers_of(path, table, table.to_dict("records"))
        ]
        num_known = num_without = num_corrected = 0
        # Corrections last, the earliest first: one may correct another.
        answers.sort(key=lambda one: (one[1].corrects != "", one[1].at if one[1].corrects else ""))
        for place, answer in answers:
            same = [other for other in known[place] if other.is_of(answer)]
            is_corrected = _correct(into, same, answer) if answer.corrects else False
            if not answer.corrects:
                _check_equal(same, answer)
            num_corrected += is_corrected
            num_without += not answer.label
            num_known += bool(same and answer.label and not is_corrected)
            if not same and not answer.corrects:
                known[place].append(answer)
                if answer.label:
                    rows.append({name: answer.row[name] for name in ADDED})
                    known[place][-1] = answer._replace(row=rows[-1])
        num_added = len(rows) - len(before)
        if num_added or num_corrected:
            names = (*ADDED, *[_EARLIER] * bool(num_corrected))
            columns = [*before.columns, *(name for name in names if name not in before.columns)]
            with whole_file(into) as draft:
                pd.DataFrame(rows, columns=columns, dtype=str).fillna("").to_csv(draft, index=False)
    return Merged(num_added, num_known, num_without, num_corrected)


def answer_files() -> list[Path]:
    """Files of answers that `label --serve` has saved; a full disk leaves an empty one."""
    return sorted(path for path in SUGGESTIONS.glob(f"*{SUFFIX}") if path.stat().st_size)


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
        if other.label != answer.label and not _is_superseded(answer, other):
            raise InputError(
                f"{other} and {answer}: two answers to one square. Fix: correct or remove one of them."
            )


def _is_superseded(answer: _Answer, other: _Answer) -> bool:
    """Whether the label of an answer was corrected, in a row of patches.csv, after it was given."""
    return answer.at <= other.at and answer.label in [one["label"] for one in other.earlier()]


def _correct(into: Path, same: Sequence[_Answer], answer: _Answer) -> bool:
    """Correct the rows of a labeled square; whether an answer, not read before, changes their label.

    Raises:
        InputError: patches.csv has another label by now; both rows are named.
    """
    labeled = [other for other in same if other.label]
    if answer.label == answer.corrects and not labeled:
        return False  # The label of an outline is confirmed.
    if not labeled:
        outlines = into.with_name("annotations") / f"{answer.row['slide_id']}.geojson"
        _LOG.warning(
            "label: %s: the label %s is of no row in %s. Correct the outline in %s",
            answer, answer.corrects, into, outlines,
        )  # fmt: skip
        return False
    is_corrected = False
    for other in labeled:
        if not answer.label:
            _LOG.warning(
                "label: %s: the label of %s stays. To leave it out, remove the row there and in %s",
                answer, other, SUGGESTIONS / f"*{SUFFIX}",
            )  # fmt: skip
        elif other.label != answer.label and not _is_superseded(answer, other):
            earlier = other.earlier()
            if other.label != answer.corrects or (earlier and answer.at <= other.at):
                raise InputError(
                    f"{other} and {answer}, which corrects {answer.corrects}: the label was changed meanwhile. "
                    "Fix: correct or remove one of them."
                )
            earlier.append({name: str(other.row.get(name, "")) for name in _FACTS})
            other.row.update({name: answer.row[name] for name in _FACTS})
            other.row[_EARLIER] = json.dumps(earlier, ensure_ascii=False)
            is_corrected = True
    return is_corrected


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
        columns=[*table.columns, *(name for name in (*ADDED, CORRECTS) if name not in table)], fill_value=""
    )
    empty = (table["answer"] == LABEL) & (table["label"] == "")
    if empty.any():
        raise InputError(f"{path}, row {first_row(empty)}: label is empty. Fix: fill it.")
    check_classes(path, table["label"])
    check_classes(path, table[CORRECTS])
    return table


def _answers_of(
    path: Path, table: pd.DataFrame, rows: Sequence[dict[Any, Any]]
) -> list[tuple[tuple[str, float, float], _Answer]]:
    """Place and answer of the rows that are squares of slides; places are compared to a hundredth of a pixel."""
    if not {"slide_id", "y", "x"} <= set(table.columns):
        return []
    full = table.reindex(columns=[*table.columns, *{"mpp", "side_px"} - {*table.columns}], fill_value="")
    y, x = (
        read_numbers(path, full[name], 0.0, 2**31, "level-0 pixels, 0 or more").round(2)
        for name in ("y", "x")
    )
    mpp = read_numbers(path, full["mpp"], 0.05, 64.0, "µm/px, 0.05 to 64")
    side = read_numbers(path, full["side_px"], 1, 2**20, "a whole number of pixels, 1 or more", whole=True)
    squares = zip(full.index, full["slide_id"], y, x, mpp, side, rows, strict=True)
    return [
        ((slide, at_y, at_x), _Answer(of_mpp, of_side, f"{path}, row {number}", row))
        for number, slide, at_y, at_x, of_mpp, of_side, row in squares
        if slide
    ]
