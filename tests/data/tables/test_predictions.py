from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.tables.predictions import (
    ID_COLUMNS,
    check_same_patches,
    predictions_table,
    read_predictions,
    write_predictions,
)

CLASSES = ["tumor", "x_y", "y"]
Edit = Callable[[pd.DataFrame], pd.DataFrame]


def _rows(num: int, split: str = "test", **given: object) -> pd.DataFrame:
    names = [f"{split}-{i}" for i in range(num)]
    rows = {"patch_id": names, "split": split, "slide_id": "", "patient_id": "", "label": ""}
    return pd.DataFrame(rows | {"score": np.nan, "rater_a": np.nan, "rater_b": np.nan} | given)


def _classified(num: int = 6, split: str = "test", **given: object) -> pd.DataFrame:
    rows = _rows(num, split, label=[CLASSES[i % 3] for i in range(num)], **given)
    probabilities = np.random.default_rng(0).dirichlet(np.ones(3), size=num)
    return predictions_table(rows, {"student": probabilities, "color_mean": probabilities[:, ::-1]}, CLASSES)


def _scored(num: int = 6, **given: object) -> pd.DataFrame:
    score = np.linspace(0, 1, num)
    return predictions_table(
        _rows(num, score=score, **given), {"student": score[:, None] / 2, "color_mean": score[:, None]}, None
    )


def test_probabilities_come_back_by_model_and_class_where_both_names_hold_underscores(tmp_path: Path) -> None:
    table = _classified()
    write_predictions(tmp_path / "p.csv", [table])
    read = read_predictions(tmp_path / "p.csv")
    assert read.classes == tuple(CLASSES)
    assert list(read.predictions) == ["student", "color_mean"]
    expected = table[[f"color_mean_{label}" for label in CLASSES]].to_numpy()
    np.testing.assert_allclose(read.predictions["color_mean"], expected, rtol=1e-5)
    assert list(read.rows.columns) == list(ID_COLUMNS)
    assert read.references[""].tolist() == [0, 1, 2, 0, 1, 2]


def test_a_row_has_the_ids_of_the_patch_and_the_predictions_of_each_model() -> None:
    table = predictions_table(_rows(2, label="y"), {"student": np.tile([0.25, 0.75], (2, 1))}, ["y", "z"])
    assert table["label"].tolist() == ["y", "y"]
    assert table["student_y"].tolist() == [0.25] * 2
    assert table["student_z"].tolist() == [0.75] * 2


def test_scores_come_back_with_the_raters_of_those_patches_that_have_two(tmp_path: Path) -> None:
    plain, rated = _scored(), _scored(rater_a=0.25, rater_b=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    rated["split"], rated["patch_id"] = "validation", [f"v{i}" for i in range(6)]
    write_predictions(tmp_path / "p.csv", [rated, plain])
    read = read_predictions(tmp_path / "p.csv")
    assert read.classes is None
    assert read.splits == ("validation", "test")
    validation, test = read.of_split("validation"), read.of_split("test")
    assert set(validation.references) == {"_a", "_b"}
    assert validation.references["_b"].tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    np.testing.assert_allclose(test.references[""], np.linspace(0, 1, 6))
    assert test.predictions["student"].shape == (6,)
    np.testing.assert_allclose(test.predictions["student"], np.linspace(0, 0.5, 6))


def test_ids_and_labels_that_look_like_numbers_or_like_nothing_stay_texts(tmp_path: Path) -> None:
    rows = _rows(3, patch_id=["007", "NA", "1e5"], label=["0", "1", "0"])
    table = predictions_table(rows, {"student": np.full((3, 2), 0.5)}, ["0", "1"])
    write_predictions(tmp_path / "p.csv", [table])
    read = read_predictions(tmp_path / "p.csv")
    assert read.rows["patch_id"].tolist() == ["007", "NA", "1e5"]
    assert read.references[""].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("given", "unit", "num_groups"),
    [
        ({}, "patches", 6),
        ({"slide_id": ["a", "a", "b", "b", "c", "c"]}, "slides", 3),
        ({"slide_id": ["a", "a", "b", "b", "c", "c"], "patient_id": ["p", "p", "p", "p", "q", "q"]}, "patients", 2),
        ({"patient_id": "p"}, "patches", 6),
    ],
)  # fmt: skip
def test_patches_of_a_patient_else_of_a_slide_belong_together(
    tmp_path: Path, given: dict[str, object], unit: str, num_groups: int
) -> None:
    write_predictions(tmp_path / "p.csv", [_classified(**given)])
    read = read_predictions(tmp_path / "p.csv")
    assert read.unit == unit
    assert len(set(read.groups)) == num_groups


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.drop(columns="label"), r"no column 'label'"),
        (lambda t: t[list(ID_COLUMNS)], "no columns of models"),
        (lambda t: t.iloc[:0], "no rows"),
        (lambda t: t.assign(patch_id=["a", "b", "a", "c", "d", "e"]), "row 4: expected patch_id: one that no other"),
        (lambda t: t.assign(split=["test"] * 5 + ["tets"]), "row 7: expected split: one of train"),
        (lambda t: t.assign(label=["tumor", "", "y", "y", "y", "y"]), "row 3: expected a label or a score"),
        (lambda t: t.assign(label="stroma"), "no <model>_<class> of the labels stroma"),
        (lambda t: t.assign(student_y="much"), "row 2: student_y is 'much', not a number"),
        (lambda t: t.assign(student_y=1.5), "row 2: expected probabilities of student"),
        (lambda t: t.assign(score=[1, 2, 3, 4, 5, None]), "row 7: expected a score in every row"),
        (lambda t: t.drop(columns="student_y"), "no <model>_<class>"),
    ],
)  # fmt: skip
def test_a_table_that_is_none_is_refused_in_one_line_that_names_file_and_row(
    tmp_path: Path, edit: Edit, message: str
) -> None:
    edit(_classified()).to_csv(tmp_path / "p.csv", index=False)
    with pytest.raises(ValueError, match=message) as caught:
        read_predictions(tmp_path / "p.csv")
    assert str(caught.value).startswith(f"{tmp_path / 'p.csv'}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_names_the_stage_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"p\.csv: not found\. Fix: run `dvc repro evaluate`"):
        read_predictions(tmp_path / "p.csv")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.iloc[[0, 2, 1, 3, 4, 5]], "row 3 has patch_id 'test-1' in one and 'test-2' in the other"),
        (lambda t: t.iloc[:4], "6 and 4 patches; .*only is 'test-4'"),
        (lambda t: t.assign(label=["tumor", "x_y", "y", "y", "x_y", "y"]), "row 5 has label 'tumor'"),
        (lambda t: t.assign(rater_a=[0.5, *[None] * 5]), "row 2 has rater_a nan in one and 0.5 in the other"),
        (lambda t: t.rename(columns=lambda name: name.replace("tumor", "tumour")).replace("tumor", "tumour"),
         "classes"),
    ],
)  # fmt: skip
def test_tables_of_other_patches_are_not_compared_and_both_are_named(
    tmp_path: Path, edit: Edit, message: str
) -> None:
    table = _classified()
    paths = tmp_path / "a.csv", tmp_path / "b.csv"
    for path, written in zip(paths, (table, edit(table)), strict=True):
        write_predictions(path, [written])
    first, second = map(read_predictions, paths)
    check_same_patches(first, first)
    with pytest.raises(ValueError, match=message) as caught:
        check_same_patches(first, second)
    assert str(caught.value).startswith(f"{paths[0]} and {paths[1]}")
