from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from histo_monai.datasets.splits import check_patients_apart, split_slides


def _table(patients: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"slide_id": [f"s{i}" for i in range(len(patients))], "patient_id": patients})


def test_a_patient_is_never_on_both_sides() -> None:
    table = _table([f"p{i % 7}" for i in range(40)])
    for seed in range(20):
        split = split_slides(table, 0.25, np.random.default_rng(seed))
        assert split.groupby(table["patient_id"]).nunique().max() == 1
        assert 0.25 * 40 <= (split == "validation").sum() <= 0.25 * 40 + 6


def test_slides_without_a_patient_are_split_one_by_one() -> None:
    split = split_slides(_table([""] * 12), 0.25, np.random.default_rng(0))
    assert (split == "validation").sum() == 3


def test_one_patient_alone_cannot_be_split() -> None:
    with pytest.raises(ValueError, match=r"all 3 slides are of one patient \(a\)"):
        split_slides(_table(["a", "a", "a"]), 0.2, np.random.default_rng(0))


def test_training_keeps_a_patient_whatever_the_fraction() -> None:
    split = split_slides(_table(["a", "b"]), 0.9, np.random.default_rng(0))
    assert set(split) == {"train", "validation"}


def test_the_order_of_rows_does_not_change_the_split() -> None:
    table = _table([f"p{i}" for i in range(10)])
    split = split_slides(table, 0.3, np.random.default_rng(1))
    turned = split_slides(table[::-1], 0.3, np.random.default_rng(1))
    assert (split.sort_index() == turned.sort_index()).all()


def test_a_given_split_with_a_patient_on_two_sides_is_refused_by_name() -> None:
    table = _table(["a", "a", "b"]).assign(split=["train", "validation", "train"])
    with pytest.raises(ValueError, match=r"patient 'a' .*s0 in train and s1 in validation"):
        check_patients_apart(table)
    check_patients_apart(table.assign(split=["train", "train", "validation"]))
