from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.tables.columns import whole_slide_table
from histo_monai.data.tables.folds import (
    assign_folds,
    slides_to_fold,
    training_diagnoses,
    why_no_diagnosis,
)
from histo_monai.data.tables.patches import labeled_table
from histo_monai.utils.errors import InputError


def _slides(labels: str, patients: str = "") -> pd.DataFrame:
    """One slide for each letter: t(umor) or n(ormal); `patients` gives a letter for each, or none."""
    names = {"t": "tumor", "n": "normal", " ": ""}
    rows = [
        {
            "slide_id": f"slide_{number}",
            "path": "x.tif",
            "label": names[letter],
            "split": "train",
            "patient_id": patients[number] if patients else "",
        }
        for number, letter in enumerate(labels)
    ]
    return whole_slide_table(rows)


@pytest.mark.parametrize("num_folds", [2, 3, 5])
def test_slides_and_each_label_are_spread_evenly_over_folds(num_folds: int) -> None:
    slides = _slides("ttttttttt" + "nnnnnnnnnnnn")
    folds = assign_folds(slides, num_folds, np.random.default_rng(0))
    counts = np.bincount(folds, minlength=num_folds)
    assert counts.max() - counts.min() <= 1
    for label in ("tumor", "normal"):
        of_label = np.bincount(folds[slides["label"] == label], minlength=num_folds)
        assert of_label.max() - of_label.min() <= 1


def test_all_slides_of_a_patient_are_in_one_fold() -> None:
    slides = _slides("tntntntnnnnn", "aabbccddeeff")
    folds = assign_folds(slides, 3, np.random.default_rng(1))
    assert (folds.groupby(slides["patient_id"]).nunique() == 1).all()


def test_the_order_of_the_rows_does_not_matter() -> None:
    slides = _slides("ttttnnnnnn")
    folds = dict(zip(slides["slide_id"], assign_folds(slides, 3, np.random.default_rng(2)), strict=True))
    turned = slides[::-1].reset_index(drop=True)
    again = dict(zip(turned["slide_id"], assign_folds(turned, 3, np.random.default_rng(2)), strict=True))
    assert folds == again


def test_a_single_slide_of_a_label_cannot_be_held_out() -> None:
    with pytest.raises(ValueError, match=r"only 1 training slide or patient has the label 'tumor'"):
        assign_folds(_slides("tnnn"), 2, np.random.default_rng(0))


def _patches(slide_ids: list[str], split: str = "train") -> pd.DataFrame:
    rows = [
        {
            "patch_id": f"{name}-{split}",
            "path": "x",
            "side_px": 8,
            "slide_id": name,
            "split": split,
            "label": "tumor",
        }
        for name in slide_ids
    ]
    return labeled_table(rows)


def test_only_slides_that_patches_are_trained_on_are_folded() -> None:
    slides = _slides("tntntn").assign(split=["train"] * 4 + ["test"] * 2)
    trained_on = _patches(["slide_0", "slide_1"])
    validated = _patches(["slide_2"], "validation")
    slides_of_folds = slides_to_fold(slides, pd.concat([trained_on, validated]), "tumor")
    assert slides_of_folds["slide_id"].tolist() == ["slide_0", "slide_1"]


@pytest.mark.parametrize(
    ("labels", "positive", "classes", "why"),
    [
        ("nnnntn", "tumor", ["tumor"], "labels of training slides do not include both 'tumor'"),
        ("    tn", "tumor", ["tumor"], r"\(0 of 4 have a label\)"),
        ("      ", "tumor", ["stroma"], "no slide has a label$"),
        ("tntntt", "tumor", ["tumor"], "labels of test slides"),
        ("tnnntn", "tumor", ["tumor"], "are 1 of 'tumor' and 3 of others"),
        ("tttntn", "tumor", [], "needs 2 of each"),
        ("tntntn", "cancer", ["tumor"], "classes of patches are tumor, without 'cancer'"),
        ("tntntn", "cancer", [], "training slides do not include both 'cancer'"),
        ("tntntn", "tumor", ["tumor"], "^$"),
    ],
)
def test_nothing_is_folded_where_nothing_can_be_diagnosed(
    labels: str, positive: str, classes: list[str], why: str
) -> None:
    slides = _slides(labels).assign(split=["train"] * 4 + ["test"] * 2)
    assert re.search(why, why_no_diagnosis(slides, positive, classes))
    patches = _patches(slides["slide_id"].tolist())
    if classes:
        assert slides_to_fold(slides, patches, positive).empty == (why != "^$")


CLASSES = ["normal", "tumor"]


def test_diagnoses_are_labels_of_training_slides_with_patches_alone() -> None:
    slides = _slides("tn ttnt")
    slides["split"] = ["train", "train", "train", "test", "validation", "train", "train"]
    known = training_diagnoses(slides, slides[:-1][["slide_id"]], "tumor", CLASSES)
    assert known.to_dict() == {"slide_0": True, "slide_1": False, "slide_5": False}


@pytest.mark.parametrize(
    ("labels", "positive", "classes", "named"),
    [
        ("tt ", "tumor", CLASSES, "2 training slides with unlabeled patches are 'tumor' and 0"),
        ("tn", "cancer", CLASSES, "'cancer', got normal, tumor"),
        ("tn", "tumor", [*CLASSES, "stroma"], "two classes"),
        ("tn", "tumor", None, "got scores"),
    ],
)
def test_diagnoses_that_cannot_teach_are_refused(
    labels: str, positive: str, classes: list[str] | None, named: str
) -> None:
    slides = _slides(labels)
    with pytest.raises(InputError, match=named):
        training_diagnoses(slides, slides[["slide_id"]], positive, classes)
