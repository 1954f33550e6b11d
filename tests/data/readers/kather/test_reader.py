from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.readers.kather import reader as kather
from histo_monai.utils.files.trees import read_image

TRAIN = "NCT-CRC-HE-100K"


@pytest.fixture
def tree(kather_tree: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return shutil.copytree(kather_tree, tmp_path / "tree")


def test_the_class_of_a_patch_is_its_folder(kather_tree: Path) -> None:
    table = kather.labeled_patches(kather_tree, folder=TRAIN).table
    files = sorted(kather_tree.glob("*/*/*.tif"))
    assert sorted(table["path"]) == [str(path) for path in files]
    for path in files:
        row = table[table["path"] == str(path)].iloc[0]
        assert row["label"] == path.parent.name == path.name.split("-")[0]
        assert row["split"] == {TRAIN: "", "CRC-VAL-HE-7K": "test"}[path.parent.parent.name]
    assert table["patch_id"].is_unique
    assert set(table["mpp"]) == {0.5}
    assert set(table["side_px"]) == {224}


def test_that_patients_are_unknown_is_a_warning(kather_tree: Path) -> None:
    about = kather.labeled_patches(kather_tree, folder=TRAIN).about_patients
    assert "NCT-CRC-HE-100K has no patient ids" in about


@pytest.mark.parametrize("leading", [True, False])
def test_the_published_zips_give_the_same_table_and_pixels(
    kather_tree: Path, tmp_path: Path, zipped: Callable[..., None], leading: bool
) -> None:
    for name in (TRAIN, kather.TEST):
        zipped(kather_tree / name, tmp_path / f"{name}.zip", leading)
    unpacked, packed = (kather.labeled_patches(root, folder=TRAIN).table for root in (kather_tree, tmp_path))
    pd.testing.assert_frame_equal(packed.drop(columns="path"), unpacked.drop(columns="path"))
    for first, second in zip(unpacked["path"], packed["path"], strict=True):
        assert np.array_equal(read_image(Path(first)), read_image(Path(second)))


def test_the_folder_without_stain_normalization_is_read_where_asked_for(tree: Path) -> None:
    (tree / TRAIN).rename(tree / f"{TRAIN}-NONORM")
    table = kather.labeled_patches(tree, folder=f"{TRAIN}-NONORM").table
    assert table["path"].str.contains(f"{TRAIN}-NONORM/").sum() == 27
    with pytest.raises(ValueError, match=rf"neither {TRAIN}/ nor {TRAIN}\.zip"):
        kather.labeled_patches(tree, folder=TRAIN)


DIRT: dict[str, tuple[Callable[[Path], object], str]] = {
    "unknown class": (lambda tree: (tree / "POLYP").mkdir(), r"POLYP: no class of this name.* ADI, "),
    "lower case": (lambda tree: (tree / "ADI").rename(tree / "adi"), "adi: no class of this name"),
    "missing class": (lambda tree: shutil.rmtree(tree / "STR"), "STR: no image of this class"),
    "empty class": (
        lambda tree: [path.unlink() for path in (tree / "STR").iterdir()],
        "STR: no image of this class",
    ),
    "image beside the classes": (
        lambda tree: shutil.copy(next(tree.glob("TUM/*.tif")), tree / "x.tif"),
        r"x\.tif: lies in no class folder",
    ),
    "image below a class": (
        lambda tree: shutil.copytree(tree / "TUM", tree / "TUM/old"),
        r"TUM/old/.*: lies in no class folder",
    ),
}


@pytest.mark.parametrize("part", [TRAIN, kather.TEST])
@pytest.mark.parametrize("kind", sorted(DIRT))
def test_a_folder_that_is_not_one_of_the_nine_is_named(kind: str, part: str, tree: Path) -> None:
    spoil, message = DIRT[kind]
    spoil(tree / part)
    with pytest.raises(ValueError, match=message) as caught:
        kather.labeled_patches(tree, folder=TRAIN)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
