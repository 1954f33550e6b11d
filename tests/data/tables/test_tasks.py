from __future__ import annotations

import pandas as pd
import pytest

from histo_monai.data.tables.patches import empty_table, labeled_table
from histo_monai.data.tables.tasks import (
    dependence_groups,
    of_one_group,
    split_rows,
    task_classes,
    task_targets,
)


def _table(**columns: list) -> pd.DataFrame:
    num = len(next(iter(columns.values())))
    rows = {"patch_id": [f"p{i}" for i in range(num)], "path": ["x"] * num, "side_px": [8] * num}
    return labeled_table(pd.DataFrame({**rows, **columns}))


def test_classes_are_numbered_in_alphabetical_order() -> None:
    table = _table(label=["tumor", "normal", "tumor"])
    assert task_classes(table) == ["normal", "tumor"]
    assert task_targets(table, ["normal", "tumor"]).tolist() == [1, 0, 1]


def test_scores_have_no_classes() -> None:
    table = _table(score=[0.25, 1.0])
    assert task_classes(table) is None
    assert task_targets(table, None).tolist() == [0.25, 1.0]


def test_rows_of_a_split_are_numbered_anew() -> None:
    rows = split_rows(_table(label=["a", "b", "a"], split=["train", "test", "test"]), "test")
    assert rows["patch_id"].tolist() == ["p1", "p2"]
    assert rows.index.tolist() == [0, 1]


def test_patches_belong_together_by_patient_else_by_slide_else_not_at_all() -> None:
    table = _table(
        label=list("aaaaaa"), patient_id=["x", "x", "", "", "", ""], slide_id=["1", "2", "2", "2", "", ""]
    )
    groups = dependence_groups(table)
    assert [int((groups == group).sum()) for group in groups] == [2, 2, 2, 2, 1, 1]


def test_intervals_of_one_patient_are_stated_not_to_cover_others() -> None:
    table = _table(label=["a", "b"], patient_id=["x", "x"])
    assert len(set(dependence_groups(table))) == 2
    assert of_one_group(table, "test") == [
        "all test patches are of patient x: intervals resample patches and do not cover other patients"
    ]
    assert of_one_group(_table(label=["a", "b"], patient_id=["x", "y"]), "test") == []
    assert of_one_group(_table(label=["a", "b"]), "test") == []


def test_no_patch_is_no_task() -> None:
    with pytest.raises(ValueError, match="no labeled patch"):
        task_classes(empty_table())
