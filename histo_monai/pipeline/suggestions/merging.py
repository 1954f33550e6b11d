"""Labels that were saved on the labeling page -> patches.csv of the own data; earlier labels stay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from histo_monai.data.tables.csv_rows import read_rows
from histo_monai.data.tables.manifests import check_classes, first_row, read_numbers, read_table
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import whole_file

ADDED = ("slide_id", "y", "x", "mpp", "side_px", "label", "labeled_by", "labeled_at")
"""Columns of patches.csv that a label fills."""
LABEL, NO_LABELS = "label", ("cannot tell", "artefact")
"""Answers of the page."""
_NEEDED = ("slide_id", "y", "x", "mpp", "side_px", "answer")

_Key = tuple[str, float, float]


class Merged(NamedTuple):
    """What came of the files: labels added, labels that were there already, and answers without a label."""

    added: int
    known: int
    without_label: int


class _Given(NamedTuple):
    where: str
    label: str


def merge_labels(files: Sequence[Path], into: Path) -> Merged:
    """Add the labels of files of the page to patches.csv, all or none; the file is made if it is missing.

    Raises:
        InputError: A file is none of the page's, or two labels of one square differ; both are named.
        OutputError: patches.csv cannot be written.
    """
    before = read_rows(into) if into.exists() else pd.DataFrame(columns=list(ADDED), dtype=str)
    if "score" in before and (before["score"] != "").any():
        raise InputError(
            f"{into}: has scores, and one table has labels or scores. Fix: name another file by --into."
        )
    given = {key: _Given(f"{into}, row {number}", label) for number, key, label in _squares(into, before)}
    fresh: list[dict[str, str]] = []
    num_known = num_without = 0
    for path in files:
        table = _answers(path)
        num_without += int((table["answer"] != LABEL).sum())
        labels = table[table["answer"] == LABEL]
        for (number, key, label), row in zip(_squares(path, labels), labels.to_dict("records"), strict=True):
            here = _Given(f"{path}, row {number}", label)
            known = given.setdefault(key, here)
            if known.label != label:
                raise InputError(
                    f"{known.where} ({known.label}) and {here.where} ({label}): one square with two labels. "
                    "Fix: correct one of them."
                )
            if known is here:
                fresh.append({name: str(row.get(name, "")) for name in ADDED})
            else:
                num_known += 1
    if fresh:
        columns = [*before.columns, *(name for name in ADDED if name not in before.columns)]
        whole = pd.concat([before, pd.DataFrame(fresh, dtype=str)], ignore_index=True)
        with whole_file(into) as draft:
            whole.reindex(columns=columns).fillna("").to_csv(draft, index=False)
    return Merged(len(fresh), num_known, num_without)


def _answers(path: Path) -> pd.DataFrame:
    """Rows of a file of the page."""
    table = read_table(path, needed=_NEEDED, key=())
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


def _squares(path: Path, table: pd.DataFrame) -> list[tuple[int, _Key, str]]:
    """Line, place and label of the rows that are squares of slides; places are compared to a hundredth of a pixel."""
    if not {"slide_id", "y", "x"} <= set(table.columns):
        return []
    y, x = (
        read_numbers(path, table[name], 0.0, 2**31, "level-0 pixels, 0 or more").round(2)
        for name in ("y", "x")
    )
    labels = table["label"] if "label" in table else pd.Series("", index=table.index)
    rows = zip(table.index, table["slide_id"], y, x, labels, strict=True)
    return [(number, (slide, at_y, at_x), label) for number, slide, at_y, at_x, label in rows if slide]
