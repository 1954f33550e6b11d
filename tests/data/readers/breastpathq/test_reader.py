from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.readers.breastpathq import reader as breastpathq
from histo_monai.data.tables.patches import LabeledDataset
from histo_monai.utils.files.trees import read_image

Read = Callable[..., LabeledDataset]


@pytest.fixture
def tree(breastpathq_tree: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return shutil.copytree(breastpathq_tree, tmp_path / "tree")


def _csv(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype={"slide": str, "rid": str})


def test_scores_are_those_of_the_three_tables_and_stand_beside_their_image(
    breastpathq_tree: Path, read_breastpathq: Read
) -> None:
    table = read_breastpathq(breastpathq_tree).table
    datasets, testing = breastpathq_tree / "breastpathq/datasets", breastpathq_tree / "breastpathq-test"
    for csv, folder in (("train_labels.csv", "train"), ("val_labels.csv", "validation")):
        for row in _csv(datasets / csv).itertuples():
            result = table[table["path"] == str(datasets / folder / f"{row.slide}_{row.rid}.tif")]
            assert result[["slide_id", "score", "split"]].to_numpy().tolist() == [[row.slide, row.y, ""]]
    for row in _csv(testing / "test_labels.csv").itertuples():
        result = table[table["path"] == str(testing / "test_patches" / f"{row.slide}_{row.rid}.tif")]
        assert result[["rater_a", "rater_b", "split"]].to_numpy().tolist() == [[row.p1, row.p2, "test"]]
        assert result["score"].iloc[0] == pytest.approx((row.p1 + row.p2) / 2)
    assert len(table) == 24
    assert table["patch_id"].is_unique
    assert (table["label"] == "").all()
    assert set(table["mpp"]) == {0.5}


def test_patients_of_the_test_patches_come_from_their_table_where_there_is_one(
    tree: Path, read_breastpathq: Read
) -> None:
    path = tree / "breastpathq-test/test_patient_ids.csv"
    patient = _csv(path).set_index("slide")["patient_id"].astype(str)
    table = read_breastpathq(tree).table
    test = table[table["split"] == "test"]
    assert test["patient_id"].tolist() == patient[test["slide_id"]].tolist()
    assert (table.loc[table["split"] == "", "patient_id"] == "").all()
    path.unlink()
    assert (read_breastpathq(tree).table["patient_id"] == "").all()


@pytest.mark.parametrize("leading", [True, False])
def test_the_published_zips_give_the_same_table_and_pixels(
    breastpathq_tree: Path, tmp_path: Path, zipped: Callable[..., None], leading: bool, read_breastpathq: Read
) -> None:
    for name in ("breastpathq", "breastpathq-test"):
        zipped(breastpathq_tree / name, tmp_path / f"{name}.zip", leading)
    unpacked, packed = read_breastpathq(breastpathq_tree).table, read_breastpathq(tmp_path).table
    pd.testing.assert_frame_equal(packed.drop(columns="path"), unpacked.drop(columns="path"))
    for row in (0, 18, 23):
        pixels = [read_image(Path(table["path"][row])) for table in (unpacked, packed)]
        assert np.array_equal(*pixels)
    assert packed["path"].str.contains(r"\.zip/").all()


def test_the_two_raters_may_stand_in_two_tables(tree: Path, read_breastpathq: Read) -> None:
    folder = tree / "breastpathq-test"
    both = _csv(folder / "test_labels.csv")
    expected = read_breastpathq(tree).table
    for rater in ("p1", "p2"):
        one = both[["slide", "rid", rater]].rename(columns={"slide": "Image", "rid": "Region", rater: "y"})
        one.sample(frac=1, random_state=0).to_csv(folder / f"{rater}.csv", index=False)
    raters = {
        f"rater_{letter}": SimpleNamespace(file=f"p{number}.csv", column="y")
        for letter, number in (("a", 1), ("b", 2))
    }
    table = read_breastpathq(tree, slide_column="Image", region_column="Region", **raters).table
    order = ["patch_id"]
    pd.testing.assert_frame_equal(
        table.sort_values(order, ignore_index=True), expected.sort_values(order, ignore_index=True)
    )


def test_labels_of_validation_may_lie_with_the_test_set(tree: Path, read_breastpathq: Read) -> None:
    expected = read_breastpathq(tree).table
    here, there = tree / "breastpathq/datasets/val_labels.csv", tree / "breastpathq-test/val_labels.csv"
    shutil.copy(here, there)
    pd.testing.assert_frame_equal(read_breastpathq(tree).table, expected)
    there.write_text(here.read_text().replace("slide,rid,y", "slide,rid,y\n1,1,0"))
    with pytest.raises(ValueError, match="two tables that differ"):
        read_breastpathq(tree)
    there.unlink()
    here.rename(there)
    pd.testing.assert_frame_equal(read_breastpathq(tree).table, expected)


def test_names_of_images_may_be_in_upper_case(tree: Path, read_breastpathq: Read) -> None:
    ids = read_breastpathq(tree).table["patch_id"].tolist()
    for path in (tree / "breastpathq/datasets/train").glob("*.tif"):
        path.rename(path.with_suffix(".TIF"))
    assert read_breastpathq(tree).table["patch_id"].tolist() == ids


def _replace(csv: Path, row: int, line: str) -> None:
    lines = csv.read_text().splitlines()
    lines[row - 1] = line
    csv.write_text("\n".join(lines) + "\n")


def _first_image(tree: Path) -> Path:
    row = _csv(tree / "breastpathq/datasets/train_labels.csv").iloc[0]
    return tree / f"breastpathq/datasets/train/{row.slide}_{row.rid}.tif"


TRAIN_CSV, TEST_CSV = "breastpathq/datasets/train_labels.csv", "breastpathq-test/test_labels.csv"
PATIENTS_CSV = "breastpathq-test/test_patient_ids.csv"
DIRT: dict[str, tuple[Callable[[Path], object], str]] = {
    "score above 1": (
        lambda tree: _replace(tree / TRAIN_CSV, 3, "1,1,1.01"),
        r"train_labels\.csv, row 3: y is '1\.01'",
    ),
    "score that is no number": (
        lambda tree: _replace(tree / TRAIN_CSV, 3, "1,1,NaN"),
        r"train_labels\.csv, row 3: y is 'NaN'",
    ),
    "no score": (lambda tree: _replace(tree / TRAIN_CSV, 3, "1,1,"), r"train_labels\.csv, row 3: y is empty"),
    "rater below 0": (
        lambda tree: _replace(tree / TEST_CSV, 2, "1,1,0.5,-0.5"),
        r"test_labels\.csv, row 2: p2 is '-0\.5'",
    ),
    "score without image": (
        lambda tree: _replace(tree / TRAIN_CSV, 4, "123,7,0.5"),
        r"train_labels\.csv, row 4: no image .*train/123_7\.tif",
    ),
    "row twice": (
        lambda tree: _replace(tree / TRAIN_CSV, 5, (tree / TRAIN_CSV).read_text().splitlines()[1]),
        r"row 5: slide '\d+' rid '\d+' is also in row 2",
    ),
    "image without score": (
        lambda tree: shutil.copy(_first_image(tree), tree / "breastpathq/datasets/train/123_7.tif"),
        r"train/123_7\.tif: no score in .*train_labels\.csv.*add it",
    ),
    "image twice": (
        lambda tree: shutil.copy(_first_image(tree), _first_image(tree).with_suffix(".png")),
        "a second image of patch",
    ),
    "no column": (
        lambda tree: _replace(tree / TEST_CSV, 1, "slide,rid,p1,path2"),
        r"test_labels\.csv: column 'p2' is missing; has slide, rid, p1, path2",
    ),
    "no table": (lambda tree: (tree / TEST_CSV).unlink(), r"test_labels\.csv: no such file"),
    "no folder": (
        lambda tree: shutil.rmtree(tree / "breastpathq-test/test_patches"),
        "test_patches: no such folder",
    ),
    "no tree": (
        lambda tree: shutil.rmtree(tree / "breastpathq"),
        r"neither breastpathq/ nor breastpathq\.zip",
    ),
    "no patient": (
        lambda tree: (tree / PATIENTS_CSV).write_text("slide,patient_id\n1,1\n"),
        r"test_patient_ids\.csv: no patient for slide \d+",
    ),
    "two patients": (
        lambda tree: (tree / PATIENTS_CSV).write_text("slide,patient_id\n1,1\n1,2\n"),
        r"test_patient_ids\.csv, row 2: slide 1 has two patients",
    ),
    "patients under another name": (
        lambda tree: (tree / PATIENTS_CSV).write_text("image,person\n1,1\n"),
        "has columns image, person.*one column with `slide`",
    ),
}


@pytest.mark.parametrize("kind", sorted(DIRT))
def test_what_is_missing_extra_or_wrong_is_one_line_with_file_and_row(
    kind: str, tree: Path, read_breastpathq: Read
) -> None:
    spoil, message = DIRT[kind]
    spoil(tree)
    with pytest.raises(ValueError, match=message) as caught:
        read_breastpathq(tree)
    assert "\n" not in str(caught.value)


def test_one_column_for_both_raters_is_refused(breastpathq_tree: Path, read_breastpathq: Read) -> None:
    with pytest.raises(ValueError, match=r"both raters of BreastPathQ are column 'p1' of test_labels\.csv"):
        read_breastpathq(breastpathq_tree, rater_b=SimpleNamespace(file="test_labels.csv", column="p1"))


def test_a_patch_that_one_rater_left_out_is_named(tree: Path, read_breastpathq: Read) -> None:
    folder = tree / "breastpathq-test"
    _csv(folder / "test_labels.csv").iloc[1:].to_csv(folder / "second.csv", index=False)
    with pytest.raises(ValueError, match=r"test_labels\.csv, row 2: patch \d+_\d+ has no score in .*second"):
        read_breastpathq(tree, rater_b=SimpleNamespace(file="second.csv", column="p2"))


def test_slides_of_test_patches_are_not_pretrained_on(tree: Path) -> None:
    tested = _csv(tree / TEST_CSV)["slide"].iloc[0]
    for name in (tested, "70001", "70002"):
        (tree / "Post-NAT-BRCA").mkdir(exist_ok=True)
        (tree / f"Post-NAT-BRCA/{name}.svs").touch()
    assert breastpathq.pretraining_slides(tree)["slide_id"].tolist() == ["70001", "70002"]
    shutil.rmtree(tree / "breastpathq-test")
    assert len(breastpathq.pretraining_slides(tree)) == 3
