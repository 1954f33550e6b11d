from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.readers.own import reader as own
from histo_monai.utils.files.trees import read_bytes, read_image

REGIONS = {"patch_px": 64, "region_mpp": 1.0, "min_region_fraction": 0.75, "num_per_region": 8}


def _patches(folder: Path, text: str) -> pd.DataFrame:
    (folder / "patches.csv").write_text(text)
    return own.labeled_patches(folder, **REGIONS).table


def test_rows_with_a_path_are_images_and_their_y_and_x_are_only_their_origin(tmp_path: Path) -> None:
    table = _patches(
        tmp_path, "path,y,x,label,patient_id,split\ni/1.png,5,6,tumor,p,train\n/abs/2.png,,,normal,q,test\n"
    )
    assert table["path"].tolist() == [str(tmp_path / "i/1.png"), "/abs/2.png"]
    assert table["label"].tolist() == ["tumor", "normal"]
    assert table["patient_id"].tolist() == ["p", "q"]
    assert table["split"].tolist() == ["train", "test"]
    assert table["side_px"].tolist() == [0, 0]
    assert table[["y", "x", "score", "slide_mpp"]].isna().all(axis=None)
    assert table["patch_id"].is_unique


def test_rows_with_a_slide_are_squares_that_take_patient_and_split_from_it(folder: Path) -> None:
    text = "slide_id,y,x,mpp,score,side_px,split\na,100,200.5,1,0.5,,\nb,100,200,1.0,1,32,\nb,100,200,1,0,,test\n"
    table = _patches(folder, text)
    assert table["path"].tolist() == [str(folder / name) for name in ("a.tif", "b.tif", "b.tif")]
    assert table["patient_id"].tolist() == ["anna", "bob", "bob"]
    assert table["split"].tolist() == ["train", "test", "test"]
    assert table[["y", "x"]].iloc[0].tolist() == [100, 200.5]
    assert table["side_px"].tolist() == [64, 32, 64]
    assert table["slide_mpp"].fillna(-1).tolist() == [-1, 0.5, 0.5]
    assert table["score"].tolist() == [0.5, 1, 0]


@pytest.mark.parametrize(
    ("row", "fits"),
    [
        ("a,32,32,1", True),  # the patch begins with the slide
        ("a,480,608,1", True),  # and ends with it: 512 - 32, 640 - 32
        ("a,30,32,1", False),
        ("a,32,30,1", False),
        ("a,482,608,1", False),
        ("a,480,610,1", False),
        ("a,64,64,2", True),  # at half the resolution it is twice as large
        ("a,62,64,2", False),
        ("b,32,32,0.5", True),  # the manifest says 0.5 µm/px of this slide
        ("b,32,32,1", False),
    ],
)
def test_a_patch_that_reaches_outside_its_slide_is_named(folder: Path, row: str, fits: bool) -> None:
    text = f"slide_id,y,x,mpp,label\na,100,100,1,x\n{row},y\n"
    if fits:
        assert len(_patches(folder, text)) == 2
        return
    with pytest.raises(ValueError, match=r"patches\.csv, row 3: the patch around y .* reaches outside slide"):
        _patches(folder, text)


def test_rows_of_real_patches_are_read_from_their_zip_in_place(real_slides: Path, tmp_path: Path) -> None:
    archive = real_slides / "idc-patches.zip"
    given = pd.read_csv(_index_of(archive, tmp_path), dtype={"patient_id": str})
    given["path"] = [f"{archive}/{name}" for name in given["path"]]
    given.to_csv(tmp_path / "patches.csv", index=False)
    table = own.labeled_patches(tmp_path, **REGIONS).table
    assert len(table) == 909
    assert table["patient_id"].value_counts().to_dict() == {"14082": 478, "14306": 431}
    assert table["label"].value_counts().to_dict() == {"normal": 545, "idc": 364}
    names = table["path"].str.extract(r"/(\d+)/(\d)/\1_.*_class(\d)\.png$")
    assert names[0].tolist() == table["patient_id"].tolist()
    assert (names[1] == "1").tolist() == (table["label"] == "idc").tolist()
    image = read_image(Path(table["path"].iloc[-1]))
    assert image.shape == (50, 50, 3)
    assert image[..., 1].mean() < min(image[..., 0].mean(), image[..., 2].mean())  # pink to purple


def _index_of(archive: Path, folder: Path) -> Path:
    (folder / "index.csv").write_bytes(read_bytes(archive / "idc-patches/index.csv"))
    return folder / "index.csv"


def test_train_and_validation_may_be_left_to_be_drawn_beside_a_given_test(tmp_path: Path) -> None:
    table = _patches(tmp_path, "path,label,split\n1.png,x,\n2.png,y,test\n")
    assert table["split"].tolist() == ["", "test"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label\n1.png,\n", "row 2: neither label nor score"),
        ("path,y\n1.png,1\n", "row 2: neither label nor score"),
        ("path,label,score\n1.png,x,0.5\n", "row 2: labels and scores in one table"),
        ("path,label,score\n1.png,x,\n2.png,,0.5\n", "row 3: labels and scores in one table"),
        ("path,score\n1.png,0.5\n2.png,1.5\n", "row 3: score is '1.5'"),
        ("path,score\n1.png,nan\n", "row 2: score is 'nan'"),
        ("path,score\n1.png,\n", "row 2: neither"),
        ("path,slide_id,label\n1.png,a,x\n", "row 2: expected a path or a slide_id, got both"),
        ("path,slide_id,label\n1.png,,x\n,,x\n", "row 3: expected a path or a slide_id, got neither"),
        ("y,x,label\n1,1,x\n", "row 2: expected a path or a slide_id, got neither"),
        ("path,label,stain\n1.png,x,HE\n", "unknown column 'stain'"),
        ("path,label,split\n1.png,x,training\n", "row 2: split is 'training'"),
        ("path,label,split\n1.png,x,train\n2.png,x,\n", "row 3: no split, while other rows"),
        ("patch_id,path,label\np,1.png,x\np,2.png,x\n", "row 3: patch_id 'p' is also in row 2"),
        ("slide_id,y,x,mpp,label\nc,100,100,1,x\n", "row 2: slide 'c' is not in"),
        ("slide_id,y,x,mpp,label\na,100,100,,x\n", "row 2: mpp is empty"),
        ("slide_id,y,mpp,label\na,100,1,x\n", "row 2: x is empty"),
        ("slide_id,y,x,mpp,label\na,-1,100,1,x\n", "row 2: y is '-1'. Fix: write level-0 pixels"),
        ("slide_id,y,x,mpp,label\na,inf,100,1,x\n", "row 2: y is 'inf'. Fix: write level-0 pixels"),
        ("slide_id,y,x,mpp,label\na,1e400,100,1,x\n", "row 2: y is '1e400'. Fix: write level-0 pixels"),
        ("slide_id,y,x,mpp,label\na,100,0x10,1,x\n", "row 2: x is '0x10'. Fix: write level-0 pixels"),
        ("slide_id,y,x,mpp,label\na,100,100,1_0,x\n", "row 2: mpp is '1_0'. Fix: write µm per pixel"),
        (
            "slide_id,y,x,mpp,side_px,label\na,100,100,1,64.7,x\n",
            "row 2: side_px is '64.7'. Fix: write a whole number of pixels",
        ),
        ("path,label\n1.png,x\n\n\n2.png,\n", "row 5: neither label nor score"),
        ('path,label\n1.png,"x\ny"\n', "row 2: label 'x\\ny' holds '\\n'"),
        ("path,label\n1.png,x\n2.png,NA\n", "row 3: label is 'NA', which reads as missing"),
        ("path,label\n1.png,x\n2.png,None\n", "row 3: label is 'None', which reads as missing"),
        ("path,label\n1.png,x\n2.png,y\u3164\n", "row 3: label 'y\\u3164' holds '\\u3164'"),
        ("path,label,patient_id\n1.png,x,p\u200b\n", "row 2: patient_id 'p\\u200b' holds '\\u200b'"),
        ("path,label,patch_id\n1.png,x,p\ufeffq\n", "row 2: patch_id 'p\\ufeffq' holds '\\ufeff'"),
        ("path,label\n1.png,x,\n", "row 2: 3 values, but the header names 2 columns"),
        ("path,label\n1.png,x\n2.png\n", "row 3: 1 values, but the header names 2 columns"),
        (
            "slide_id,y,x,mpp,label\na,100,100,1,x\n\na,100,200,1,x\na,100.0,100,1,y\n",
            "row 2 (patch a-row0000002: x) and",
        ),
        (
            "slide_id,y,x,mpp,score\na,100,100,1,0.5\na,100,100,1,0.25\n",
            "row 3 (patch a-row0000003: 0.25): one square with two labels or scores",
        ),
        ("slide_id,y,x,mpp,label\na,100,100,1,x\n\na,900,100,1,y\n", "row 4: the patch around y 900"),
        ("slide_id,y,x,mpp,label\na,100,100,20x,x\n", "row 2: mpp is '20x'. Fix: write µm per pixel"),
        ("slide_id,y,x,mpp,label\na,100,100,0.25,x\n", "slide 'a': 0.25 µm/px requested, finer than"),
        (
            "slide_id,y,x,mpp,label,patient_id\na,100,100,1,x,eve\n",
            "row 2: patient 'eve', but slides.csv has 'anna'",
        ),
        ("path,label\n", "no row below the header"),
    ],
)
def test_a_bad_table_is_one_line_that_names_file_and_row(folder: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the message is what is tested
        _patches(folder, text)
    assert message in str(caught.value)
    assert "patches.csv" in str(caught.value) or "patch_id" in message
    assert "\n" not in str(caught.value)


def test_a_slide_that_cannot_be_opened_is_named_and_one_without_patches_is_not_opened(folder: Path) -> None:
    (folder / "b.tif").write_bytes(b"")
    assert len(_patches(folder, "slide_id,y,x,mpp,label\na,100,100,1,x\n")) == 1
    with pytest.raises(ValueError, match=r"b\.tif: the file is empty"):
        _patches(folder, "slide_id,y,x,mpp,label\nb,100,100,1,x\n")


def test_the_same_square_twice_with_one_label_is_no_error(folder: Path) -> None:
    assert len(_patches(folder, "slide_id,y,x,mpp,label\na,100,100,1,x\na,100,100,1,x\na,100,100,2,y\n")) == 3


def test_the_error_for_a_missing_table_states_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"patches\.csv: not found.* path\|"):
        own.labeled_patches(tmp_path, **REGIONS)


def test_processes_change_nothing(folder: Path) -> None:
    (folder / "patches.csv").write_text("slide_id,y,x,mpp,label\na,100,100,1,x\nb,100,100,1,y\n")
    one, two = (own.labeled_patches(folder, **REGIONS, processes=n).table for n in (1, 2))
    pd.testing.assert_frame_equal(one, two)
    assert np.isnan(one["slide_mpp"][0])


def test_the_patient_of_a_slide_stands_in_slides_csv_alone(folder: Path) -> None:
    (folder / "slides.csv").write_text("slide_id,path\na,a.tif\nb,b.tif\n")
    text = "slide_id,y,x,mpp,label,patient_id\na,100,100,1,x,\nb,100,100,1,x,eve\n"
    with pytest.raises(ValueError, match=r"row 3: patient 'eve', but slides\.csv has '' for slide 'b'"):
        _patches(folder, text)
