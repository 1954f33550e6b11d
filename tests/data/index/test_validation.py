"""Labels choose by cross-validation, or separate patches do as before: what the index and check stages say."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pandas as pd
import pytest

from histo_monai.data.readers.own.slides import read_slides
from histo_monai.data.tables.columns import read_whole_slides
from histo_monai.data.tables.patches import read_patches
from histo_monai.pipeline.cli import main
from tests.hostile.project import OWN, params_with, write_image, write_state, write_text

DATASETS = ("breastpathq", "camelyon16", "kather", "own")
BYTES = {
    "breastpathq": "df40d3391a7bde566d7d8e6ac47c2fa232edcf0a0b07a5bc4ec7ed8fb6891a77",
    "camelyon16": "4ad98444cfd6d202e58658faa40a6521a42c6e36e643e87d008acfda0fe9b4d4",
    "kather": "5c0bd4e3cda97f0cb40c27883fb3650309125949b19d8599133981084e501eca",
    "own": "9e4bc60c5b214ec17c9ec2737c2112a5416beacf658c20c0201ae531bb2ba9d2",
}
"""SHA-256 of the patches.csv that commit 17f4acd wrote of the same data, when all validation was separate."""
INDEX = Path("data/index")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_CPUS", "1")


def _index(dataset: str, validation: str) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Labeled patches, whole slides and warnings."""
    params_with(**{f"labels__{dataset}__validation": validation})()
    assert main(["index"]) == 0
    warnings = json.loads((INDEX / "labels.json").read_text())["warnings"]
    return read_patches(INDEX / "patches.csv"), read_whole_slides(INDEX / "whole_slides.csv"), warnings


@pytest.mark.parametrize("dataset", DATASETS)
def test_separate_validation_has_the_bytes_that_it_had_before(dataset: str) -> None:
    write_state(dataset)
    _index(dataset, "separate")
    assert hashlib.sha256((INDEX / "patches.csv").read_bytes()).hexdigest() == BYTES[dataset]


@pytest.mark.parametrize("dataset", DATASETS)
def test_all_that_is_not_tested_is_for_training_where_labels_choose(dataset: str) -> None:
    write_state(dataset)
    separate, mapped, _ = _index(dataset, "separate")
    pretraining = [(INDEX / name).read_bytes() for name in ("slides.csv", "centers.csv")]
    labeled, whole_slides, _ = _index(dataset, "labeled")
    assert (separate["split"] == "validation").any()
    assert set(labeled["split"]) == {"train", "test"}
    assert (labeled["label_rank"].notna() == (labeled["split"] == "train")).all()
    tested, before = (table[table["split"] == "test"].reset_index(drop=True) for table in (labeled, separate))
    pd.testing.assert_frame_equal(tested, before)
    assert set(whole_slides["split"]) <= {"train", "test"}
    expected = mapped["split"].replace({"validation": "train"})
    assert whole_slides["split"].tolist() == expected.tolist()
    assert [(INDEX / name).read_bytes() for name in ("slides.csv", "centers.csv")] == pretraining


@pytest.mark.parametrize("dataset", ["breastpathq", "kather", "own"])
def test_patches_that_would_be_validation_are_training_ones(dataset: str) -> None:
    write_state(dataset)
    separate, labeled = (_index(dataset, mode)[0] for mode in ("separate", "labeled"))
    assert set(labeled["patch_id"]) == set(separate["patch_id"])


def test_camelyon16_draws_its_training_patches_from_all_slides_that_are_left_and_as_many() -> None:
    write_state("camelyon16")
    params_with(labels__camelyon16__train={"num_tumor": 6, "num_normal": 12})()
    separate, labeled = (_index("camelyon16", mode)[0] for mode in ("separate", "labeled"))
    train, fewer = (table[table["split"] == "train"] for table in (labeled, separate))
    assert train["label"].value_counts().to_dict() == {"normal": 12, "tumor": 6}
    assert fewer["label"].value_counts().to_dict() == {"normal": 12, "tumor": 6}
    left = {
        f"{kind}_{number:03d}" for kind in ("normal", "tumor") for number in (2, 3, 4)
    }  # 1: pretrained on
    assert set(train["slide_id"]) == left
    assert set(fewer["slide_id"]) < left


@pytest.mark.parametrize(
    ("reserved", "accepted"), [(2, {"separate", "labeled"}), (3, {"labeled"}), (4, set())]
)
def test_camelyon16_needs_one_slide_of_a_kind_where_labels_choose_and_two_with_separate_validation(
    reserved: int, accepted: set[str], capfd: pytest.CaptureFixture[str]
) -> None:
    write_state("camelyon16")
    params_with(corpora__camelyon16__num_normal=reserved)()
    for mode, needed in (
        ("separate", "training and validation need one each"),
        ("labeled", "training needs one"),
    ):
        params_with(labels__camelyon16__validation=mode)()
        assert (main(["index"]) == 0) == (mode in accepted)
        assert mode in accepted or f"slides; {needed}" in capfd.readouterr().err


def test_rows_marked_validation_are_counted_in_a_warning() -> None:
    write_state("own")
    (warning,) = [line for line in _index("own", "labeled")[2] if "split validation" in line]
    assert warning.startswith("4 patches with the split validation")
    assert not [line for line in _index("own", "separate")[2] if "split validation" in line]
    assert set(read_slides(OWN)["split"]) == {
        "train",
        "validation",
        "test",
    }  # of which pretraining takes its own


def test_unlabeled_patches_may_lie_on_all_slides_that_nothing_is_tested_on() -> None:
    write_state("own")
    params_with(labels__own__unlabeled=7 * 30)()
    slides = {}
    for mode in ("separate", "labeled"):
        _index("own", mode)
        slides[mode] = set(read_patches(INDEX / "unlabeled.csv")["slide_id"])
    assert slides == {"separate": {"s0", "s1", "s2", "s3"}, "labeled": {"s0", "s1", "s2", "s3", "s4"}}


def _pictures(rows: str) -> None:
    """Labeled pictures in place of squares: answer, patient and split of each."""
    lines = ["path,label,patient_id,split"]
    for number, row in enumerate(rows.split()):
        write_image(OWN / f"{number}.png", seed=number)
        lines.append(f"{number}.png,{row}")
    write_text(OWN / "patches.csv", "\n".join(lines) + "\n")


MEASURED = "a,P, b,P, a,Q, b,Q,"
CHECKED = {
    "one patient": ("a,P, b,P, a,P, b,P,", 1.0, "all labels of class 'a' are of patient P,"),
    "a class of one patient": (f"{MEASURED} c,Q,", 1.0, "all labels of class 'c' are of patient Q,"),
    "two patients": (MEASURED, 1.0, ""),
    "two patients, and a label of each class": (MEASURED, 0.5, "all labels of class 'a' are of patient "),
    "no patient known": ("a,, b,, a,, b,,", 1.0, ""),
    "a class of one picture": ("a,, a,, b,,", 1.0, "all labels of class 'b' are of patch 2.png,"),
}
"""Answer, patient and split of pictures, alpha, and why cross-validation has nothing to choose or to measure by."""


@pytest.mark.parametrize("case", CHECKED)
@pytest.mark.parametrize("is_tested", [False, True])
def test_check_states_in_a_line_where_nothing_can_be_chosen_or_measured(case: str, is_tested: bool) -> None:
    rows, alpha, why = CHECKED[case]
    write_state("own")
    _pictures(rows + " a,T,test b,T,test" * is_tested)
    params_with(alpha=alpha, slide_level__pretraining_methods=[], labels__own__validation="labeled")()
    assert main(["index"]) == main(["check"]) == 0
    data_warnings = json.loads(Path("data/check/metrics.json").read_text())["data_warnings"]
    lines = [line for line in data_warnings if "cross-validation needs two patients" in line]
    assert len(lines) == bool(why)
    what = (
        "cross-validation cannot run: "
        if is_tested
        else "no result can be measured: no patch has the split test, and "
    )
    assert all(line.startswith(what + why) for line in lines), lines


def test_check_counts_no_validation_patches_where_there_are_none() -> None:
    write_state("own")
    params_with(slide_level__pretraining_methods=[])()
    heads = {}
    for mode in ("labeled", "separate"):
        _index("own", mode)
        assert main(["check"]) == 0
        page = Path("data/check/index.html").read_text()
        heads[mode] = page[page.index("Labeled patches") : page.index("<h2>Slides")].count("<th>validation")
    assert heads == {"labeled": 0, "separate": 1}
