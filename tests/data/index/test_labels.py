from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from histo_monai.data.index.labels import build_labels, count_patches
from histo_monai.data.leakage.review import Surroundings
from histo_monai.data.leakage.views import look_at_slides
from histo_monai.data.readers.kather import reader as kather
from histo_monai.data.tables.columns import PATCH_COLUMNS, whole_slide_table
from histo_monai.data.tables.patches import LabeledDataset, labeled_table
from histo_monai.data.tables.splits import labeled_rows

NO_SLIDES = pd.DataFrame(columns=["slide_id", "path", "patient_id", "split"], dtype=str).assign(mpp=1.0)
NO_LOOKS = look_at_slides(pd.DataFrame({"path": [], "mpp": []}), processes=1)
Built = tuple[pd.DataFrame, list[str], dict[str, Any]]


def _build(labeled: LabeledDataset, **changes: Any) -> Built:
    around = {
        "corpus": NO_SLIDES,
        "whole_slides": whole_slide_table([]),
        "slides": NO_LOOKS,
        "shared_ids": False,
        "within_patients": False,
    }
    settings = {"validation_fraction": 0.25, "seed": 0, "processes": 1}
    given = Surroundings(**{name: changes.pop(name, value) for name, value in around.items()})
    labels = build_labels(labeled, around=given, **{**settings, **changes})
    return labels.table, labels.warnings, count_patches(labels.table)


def test_kather_becomes_a_table_with_splits_ranks_counts_and_its_warning(kather_tree: Path) -> None:
    table, warnings, counts = _build(kather.labeled_patches(kather_tree, folder="NCT-CRC-HE-100K"))
    assert tuple(table.columns) == PATCH_COLUMNS
    assert counts["patches_train"] + counts["patches_validation"] == 27
    assert counts["patches_test"] == len(list(kather_tree.glob("CRC-VAL-HE-7K/*/*.tif")))
    assert all(counts["classes"][name] == {"train": 2, "validation": 1, "test": 1} for name in kather.CLASSES)
    assert table["split"].tolist() == sorted(table["split"], key=["train", "validation", "test"].index)
    assert (table["label_rank"].notna() == (table["split"] == "train")).all()
    assert len(labeled_rows(table, 0.3)) == 9  # one of two in each class
    assert len(warnings) == 1
    assert "no patient ids" in warnings[0]


def test_breastpathq_is_split_by_slide_and_keeps_its_test_set(
    breastpathq_tree: Path, read_breastpathq: Callable[..., LabeledDataset]
) -> None:
    labeled = read_breastpathq(breastpathq_tree)
    table, warnings, counts = _build(labeled)
    assert table.groupby("slide_id")["split"].nunique().max() == 1
    assert set(table.loc[table["split"] == "test", "patch_id"]) == set(
        labeled.table.loc[labeled.table["split"] == "test", "patch_id"]
    )
    assert counts["patches_validation"] >= 0.25 * (len(table) - counts["patches_test"])
    assert counts["classes"] == {}
    assert warnings == []


def test_neither_processes_nor_the_order_of_files_change_the_table_but_the_seed_does(
    kather_tree: Path,
) -> None:
    labeled = kather.labeled_patches(kather_tree, folder="NCT-CRC-HE-100K")
    turned = LabeledDataset(labeled.table.sample(frac=1, random_state=0))
    first = _build(labeled)[0]
    pd.testing.assert_frame_equal(_build(labeled, processes=2)[0], first)
    pd.testing.assert_frame_equal(_build(turned)[0], first)
    assert not _build(labeled, seed=1)[0].equals(first)


def test_a_copy_of_a_test_image_among_the_training_images_fails_and_is_named(
    kather_tree: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(kather_tree, tmp_path / "tree")
    tested = next(root.glob("CRC-VAL-HE-7K/TUM/*.tif"))
    shutil.copy(tested, root / "NCT-CRC-HE-100K/TUM/TUM-COPY.tif")
    with pytest.raises(ValueError, match=r"1 leak .*TUM/TUM-COPY\.tif.* and in test .*TUM/") as caught:
        _build(kather.labeled_patches(root, folder="NCT-CRC-HE-100K"))
    assert tested.name in str(caught.value)


def test_copies_among_the_training_images_are_drawn_to_one_side(kather_tree: Path, tmp_path: Path) -> None:
    root = shutil.copytree(kather_tree, tmp_path / "tree")
    for path in list(root.glob("NCT-CRC-HE-100K/*/*.tif")):
        shutil.copy(path, path.with_name(f"{path.parent.name}-COPY{path.stem}.tif"))
    table = _build(kather.labeled_patches(root, folder="NCT-CRC-HE-100K"))[0]
    drawn = table[table["split"] != "test"]
    original = drawn["patch_id"].str.replace(r"-COPY\w+-", "-", regex=True)
    assert drawn.groupby(original)["split"].agg(["size", "nunique"]).to_numpy().tolist() == [[2, 1]] * 27


Rows = list[tuple[str, str, str]]


@pytest.fixture
def images(tmp_path: Path, write_image: Callable[..., Path]) -> Callable[[Rows], LabeledDataset]:
    """Writes an image for each (split, label, patient)."""

    def write(rows: Rows) -> LabeledDataset:
        names = ("split", "label", "patient_id")
        table = pd.DataFrame(rows, columns=list(names)).assign(side_px=0)
        table["patch_id"] = [f"{i:03d}" for i in range(len(rows))]
        table["path"] = [write_image(tmp_path / f"{i}.png", i) for i in range(len(rows))]
        return LabeledDataset(labeled_table(table))

    return write


TRAIN = [("train", "a", "1"), ("train", "b", "1")]
VALIDATION = [("validation", "a", "2"), ("validation", "b", "2")]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*TRAIN, ("test", "a", "3")], "no patch has the split validation"),
        ([("train", "a", "1"), ("validation", "a", "2")], "all training patches are of class 'a'"),
        ([*TRAIN, ("validation", "a", "2")], "class 'b' is in train but not in validation"),
        ([*TRAIN, *VALIDATION, ("validation", "c", "2")], "class 'c' is in validation but not in train"),
        ([*TRAIN, *VALIDATION, ("test", "c", "3")], "class 'c' is in test but not in train"),
        (
            [("", "a", "1"), ("", "b", "1"), ("test", "a", "3")],
            "all 2 patches for training are of one patient 1",
        ),
        ([*TRAIN, *VALIDATION, ("test", "a", "2")], "patient 2 is in validation (002) and in test (004)"),
    ],
)
def test_splits_that_training_or_testing_cannot_use_are_refused(
    rows: Rows, message: str, images: Callable[[Rows], LabeledDataset]
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the message is what is tested
        _build(images(rows))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no patch has the split test"),
        ([("test", "a", "3")], "no test patch is of class b"),
    ],
)
def test_a_test_set_that_is_not_whole_is_a_warning(
    rows: Rows, message: str, images: Callable[[Rows], LabeledDataset]
) -> None:
    (warning,) = _build(images([*TRAIN, *VALIDATION, *rows]))[1]
    assert message in warning


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("test", "a", "1"), ("test", "b", "1")], "no patch has the split train"),
        ([("train", "a", "1"), ("validation", "a", "2")], "all training patches are of class 'a'"),
        ([*TRAIN, ("test", "c", "3")], "class 'c' is in test but not in train"),
        ([*TRAIN, *VALIDATION, ("test", "a", "2")], "patient 2 is in train (002) and in test (004)"),
    ],
)
def test_splits_that_labels_alone_cannot_choose_by_are_refused(
    rows: Rows, message: str, images: Callable[[Rows], LabeledDataset]
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the message is what is tested
        _build(images(rows), validation_fraction=None)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_labels_that_choose_need_no_other_patient_and_no_class_on_two_sides(
    images: Callable[[Rows], LabeledDataset],
) -> None:
    one_patient = [("", "a", "1"), ("", "b", "1")]
    table, (warning,), _ = _build(images(one_patient), validation_fraction=None)
    assert table["split"].tolist() == ["train", "train"]
    assert warning.startswith(
        "no patch has the split test: results come from cross-validation inside the labels"
    )
    rows = [*TRAIN, ("validation", "c", "2"), *[("test", label, "3") for label in "abc"]]
    table, (warning,), _ = _build(images(rows), validation_fraction=None)
    assert table["split"].tolist() == ["train"] * 3 + ["test"] * 3
    assert warning.startswith("1 patches with the split validation")


def test_the_same_picture_of_two_patients_is_a_warning_where_folds_could_share_it(
    images: Callable[[Rows], LabeledDataset],
) -> None:
    labeled = images([*TRAIN, *VALIDATION, ("test", "a", "3"), ("test", "b", "3")])
    first, second, other = (Path(labeled.table["path"][row]) for row in (0, 1, 2))

    def warned() -> list[str]:
        return [line for line in _build(labeled, validation_fraction=None)[1] if "same pixels" in line]

    assert warned() == []
    shutil.copy(first, second)  # of the same patient, so in the same fold
    assert not [line for line in warned() if "in training" in line]
    shutil.copy(first, other)
    (line,) = [line for line in warned() if "in training" in line]
    assert line.startswith("the same pixels are in training under 2 patients, slides or patches: ")
    assert "patient 1 and patient 2" in line


def test_alpha_is_the_fraction_of_all_labels_outside_the_test(
    images: Callable[[Rows], LabeledDataset],
) -> None:
    rows = [(split, label, split) for split in ("train", "validation") for label in "ab" for _ in range(10)]
    labeled = images([*rows, ("test", "a", "t"), ("test", "b", "t")])
    table = _build(labeled, validation_fraction=None)[0]
    assert [len(labeled_rows(table, alpha)) for alpha in (0.1, 0.5, 1.0)] == [4, 20, 40]
    assert [len(labeled_rows(_build(labeled)[0], alpha)) for alpha in (0.1, 0.5, 1.0)] == [2, 10, 20]


def test_validation_from_the_patient_trained_on_is_a_warning(
    images: Callable[[Rows], LabeledDataset],
) -> None:
    rows = [("", label, "1") for label in "abababab"]
    table, warnings, _ = _build(images([*rows, ("test", "a", "2"), ("test", "b", "2")]), within_patients=True)
    assert table["split"].value_counts().to_dict() == {"train": 6, "validation": 2, "test": 2}
    (warning,) = warnings
    assert "validation and training have common patients (1)" in warning


def test_a_test_slide_of_the_corpus_fails_where_ids_mean_the_same(
    images: Callable[[Rows], LabeledDataset],
) -> None:
    labeled = images([*TRAIN, *VALIDATION, ("test", "a", "3"), ("test", "b", "3")])
    corpus = pd.DataFrame(
        {"slide_id": ["s"], "path": ["s.tif"], "patient_id": ["3"], "mpp": [1.0], "split": ["train"]}
    )
    assert len(_build(labeled, corpus=corpus)[0]) == 6
    with pytest.raises(ValueError, match=r"patient 3 is in test \(004\) and in pretraining \(s\)"):
        _build(labeled, corpus=corpus, shared_ids=True)
