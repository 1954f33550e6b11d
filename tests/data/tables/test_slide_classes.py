from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.tables.columns import whole_slide_table
from histo_monai.data.tables.slide_classes import (
    CROSS_FITTED,
    TEST,
    classes_to_learn,
    read_slide_classes,
    slide_classes_table,
)


def _slides(labels: str, splits: str, patients: str = "") -> pd.DataFrame:
    """A letter each; - for no label, e of a split for test; patients by letter."""
    rows: list[dict[str, Any]] = [
        {
            "slide_id": f"s{i}",
            "path": f"s{i}.tif",
            "label": "" if label == "-" else label,
            "split": {"t": "train", "v": "validation", "e": "test"}[split],
            "patient_id": patients[i] if patients else "",
        }
        for i, (label, split) in enumerate(zip(labels, splits, strict=True))
    ]
    return whole_slide_table(rows)


def test_classes_are_those_of_slides_that_are_not_tested() -> None:
    assert classes_to_learn(_slides("bbaa-ab", "ttvvtee")) == (["a", "b"], "")


@pytest.mark.parametrize(
    ("labels", "splits", "patients", "why"),
    [
        ("----", "ttee", "", "0 of 2 slides outside the test have one"),
        ("aa-b", "ttte", "", "2 of 3 slides outside the test have one, all of them 'a'"),
        ("aab", "ttt", "", "'b' has one slide or patient"),
        ("aabb", "tttt", "pqrr", "'b' has one slide or patient"),
        ("aabbc", "tttte", "", "only test slides have the label 'c'"),
    ],
)
def test_what_cannot_be_learned_is_reported_in_a_line(
    labels: str, splits: str, patients: str, why: str
) -> None:
    classes, line = classes_to_learn(_slides(labels, splits, patients))
    assert classes == []
    assert line.startswith("slide labels are not used: ")
    assert why in line


def _write(path: Path, slides: pd.DataFrame, folds: list[int]) -> np.ndarray:
    probabilities = np.random.default_rng(0).dirichlet([1, 1], len(slides)).round(6)
    slide_classes_table(slides, np.array(folds), ["a", "b"], {"attention": probabilities}).to_csv(
        path, index=False
    )
    return probabilities


def test_test_slides_are_read_where_they_have_labels_and_else_those_of_the_folds(tmp_path: Path) -> None:
    probabilities = _write(tmp_path / "a.csv", _slides("ab-ab", "tttee"), [0, 1, -1, -1, -1])
    read = read_slide_classes(tmp_path / "a.csv")
    assert (read.part, read.classes) == (TEST, ("a", "b"))
    assert read.rows["slide_id"].tolist() == ["s3", "s4"]
    assert read.labels.tolist() == [0, 1]
    np.testing.assert_allclose(read.predictions["attention"], probabilities[3:])
    _write(tmp_path / "b.csv", _slides("ab-a-", "tttte"), [0, 1, -1, 1, -1])
    read = read_slide_classes(tmp_path / "b.csv")
    assert read.part == CROSS_FITTED
    assert read.rows["slide_id"].tolist() == ["s0", "s1", "s3"]


def test_a_missing_probability_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    _write(path, _slides("ab", "ee"), [-1, -1])
    rows = path.read_text().splitlines()
    path.write_text("\n".join([*rows[:-1], rows[-1].rsplit(",", 1)[0] + ","]) + "\n")
    with pytest.raises(ValueError, match=r"a probability of attention is missing.* `dvc repro mil`"):
        read_slide_classes(path)
