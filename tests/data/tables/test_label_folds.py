"""Folds of patients for a cross-validation on the labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from histo_monai.data.tables.label_folds import LabelFolds, deal_folds, read_folds, write_folds
from histo_monai.data.tables.patches import labeled_table

NUM_FOLDS = 3


def _table(rows: list[tuple[str, str]]) -> pd.DataFrame:
    """Training patches of (patient, label), each in a slide of its patient."""
    return labeled_table(
        [
            {
                "patch_id": f"{i:03}",
                "patient_id": patient,
                "slide_id": f"s{patient}",
                "label": label,
                "split": "train",
                "label_rank": 0.5,
                "path": "x",
                "side_px": 8,
            }
            for i, (patient, label) in enumerate(rows)
        ]
    )


def _deal(train: pd.DataFrame, labeled: pd.DataFrame, seed: int = 0) -> LabelFolds:
    return deal_folds(train, labeled, NUM_FOLDS, np.random.default_rng(seed))


PATCHES = st.lists(st.tuples(st.sampled_from("abcdefg"), st.sampled_from("xyz")), min_size=4, max_size=40)


@settings(max_examples=150, deadline=None)
@given(rows=PATCHES, num=st.integers(2, 40), seed=st.integers(0, 5))
def test_patients_are_apart_and_every_fold_leaves_every_class(
    rows: list[tuple[str, str]], num: int, seed: int
) -> None:
    train = _table(rows)
    labeled = train.head(num)
    folds = _deal(train, labeled, seed)
    patients = {label: set(part["patient_id"]) for label, part in labeled.groupby("label")}
    if min(map(len, patients.values())) < 2:
        assert "fewer than two patients" in folds.why_none
    if folds.why_none:
        assert not folds.num
        return
    of_train, of_labeled = folds.of(train), folds.of(labeled)
    assert of_train.min() >= 0
    assert 2 <= folds.num <= NUM_FOLDS
    assert (train.assign(fold=of_train).groupby("patient_id")["fold"].nunique() == 1).all()
    for fold in range(folds.num):
        assert (of_labeled == fold).any()
        assert set(labeled["label"][of_labeled != fold]) == set(labeled["label"])


def test_a_class_of_one_patient_is_named() -> None:
    train = _table([("a", "tumor"), ("a", "normal"), ("b", "normal"), ("c", "normal")])
    assert "class 'tumor'" in _deal(train, train).why_none


def test_labels_outside_the_budget_decide_nothing() -> None:
    rows = [(patient, label) for patient in "abcdef" for label in ("normal", "tumor")]
    train = _table(rows)
    labeled = train.iloc[:8]
    poisoned = train.assign(label=[*train["label"][:8], *["poison"] * 4])
    assert _deal(train, labeled).fold_of == _deal(poisoned, labeled).fold_of


def test_the_order_of_rows_decides_nothing() -> None:
    train = _table([(patient, label) for patient in "abcdef" for label in ("normal", "tumor")])
    assert _deal(train, train).fold_of == _deal(train[::-1], train[::-1]).fold_of
    assert _deal(train, train, 1).fold_of != _deal(train, train, 2).fold_of


def test_scores_are_dealt_by_patient() -> None:
    train = _table([(patient, "") for patient in "abcd"]).assign(score=0.5)
    folds = _deal(train, train)
    assert folds.num == NUM_FOLDS
    alone = _table([("a", ""), ("a", "")]).assign(score=0.5)
    assert "fewer than two patients" in _deal(alone, alone).why_none


def test_patients_that_are_in_no_fold_have_number_minus_one(tmp_path: Path) -> None:
    train = _table([(patient, label) for patient in "abcd" for label in "xy"])
    folds = _deal(train, train)
    assert folds.of(_table([("z", "x")])).tolist() == [-1]
    slides = pd.DataFrame({"slide_id": ["sa", "t"], "patient_id": ["a", ""]})
    assert folds.of_slides(slides).tolist() == [folds.fold_of["patient a"], -1]
    write_folds(tmp_path / "folds.csv", folds)
    assert read_folds(tmp_path / "folds.csv").fold_of == folds.fold_of
    (tmp_path / "folds.csv").write_text("patient,fold\na,0\na,1\n")
    with pytest.raises(ValueError, match=r"folds\.csv"):
        read_folds(tmp_path / "folds.csv")


def test_patients_without_a_fold_are_dealt_evenly_and_the_others_stay() -> None:
    folds = LabelFolds({"patient a": 0, "patient b": 1})
    more = folds.with_others(["patient b", "patient c", "patient d", "patient e", "patient f"])
    assert {name: more.fold_of[name] for name in folds.fold_of} == folds.fold_of
    assert np.bincount(list(more.fold_of.values())).tolist() == [3, 3]
    assert LabelFolds({}).with_others(["patient c"]) == LabelFolds({})
