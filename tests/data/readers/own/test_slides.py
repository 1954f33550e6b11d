from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from histo_monai.data.readers.own import reader as own
from histo_monai.data.readers.own.slides import check_sha256, read_slides

CONTENT = {"a": b"1" * 3000, "b": b"2" * 3000, "c": b"3"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in CONTENT.items():
        (tmp_path / f"{name}.tif").write_bytes(content)
    return tmp_path


def _manifest(folder: Path, **digests: str) -> None:
    rows = "".join(f"{name},{name}.tif,{digest}\n" for name, digest in digests.items())
    (folder / "slides.csv").write_text(f"slide_id,path,sha256\n\n{rows}")


def _digest(name: str) -> str:
    return hashlib.sha256(CONTENT[name]).hexdigest()


def test_slides_whose_sha256_matches_pass_in_upper_and_lower_case_or_without(folder: Path) -> None:
    _manifest(folder, a=_digest("a"), b=_digest("b").upper(), c="")
    check_sha256(folder, processes=1)
    check_sha256(folder, processes=2)
    assert own.pretraining_slides(folder)["slide_id"].tolist() == ["a", "b", "c"]


def test_slides_that_are_others_are_one_line_with_rows_and_both_digests(folder: Path) -> None:
    _manifest(folder, a=_digest("b"), b=_digest("b"), c=_digest("a"), none=_digest("a"))
    os.mkfifo(folder / "pipe.tif")
    with (folder / "slides.csv").open("a") as file:
        file.write(f"pipe,pipe.tif,{_digest('a')}\n")
    with pytest.raises(ValueError, match=r"slides\.csv: 4 of 5 slides do not match their sha256") as caught:
        check_sha256(folder, processes=1)
    message = str(caught.value)
    a, b, c = (_digest(name)[:12] for name in "abc")
    assert f"row 3: {folder}/a.tif: its sha256 is {a}..., not {b}..." in message
    assert f"row 5: {folder}/c.tif: its sha256 is {c}..., not {a}..." in message
    assert f"row 6: {folder}/none.tif: no such file" in message
    assert f"row 7: {folder}/pipe.tif: is a pipe, socket or device, not a file" in message
    assert "\n" not in message


@pytest.mark.parametrize("digest", ["abc", "g" * 64, "0" * 63, "0" * 65, "sha256:" + "0" * 64])
def test_what_is_no_digest_is_refused_wherever_slides_are_read(folder: Path, digest: str) -> None:
    _manifest(folder, a=_digest("a"), b=digest)
    with pytest.raises(ValueError, match=rf"row 4: sha256 is '{digest}'.* 64 hexadecimal digits"):
        own.whole_slides(folder)


@pytest.mark.parametrize("name", ["../a", "batch1/a", ".a", "a.map", "nul", "x" * 300])
def test_an_id_that_cannot_be_a_file_is_named_with_its_line(folder: Path, name: str) -> None:
    (folder / "slides.csv").write_text(f"slide_id,path\na,a.tif\n\n{name},b.tif\n")
    with pytest.raises(ValueError, match=r"slides\.csv, row 4: slide_id '.* cannot name a file"):
        read_slides(folder)


def test_a_table_that_is_a_folder_is_not_called_missing(folder: Path) -> None:
    (folder / "slides.csv").mkdir()
    with pytest.raises(ValueError, match=r"slides\.csv: is a folder, not a file"):
        read_slides(folder)
    (folder / "patches.csv").mkdir()
    with pytest.raises(ValueError, match=r"patches\.csv: is a folder, not a file"):
        own.labeled_patches(folder, patch_px=8, region_mpp=1, min_region_fraction=1, num_per_region=1)


@pytest.mark.parametrize(
    "hidden",
    [
        "\u200b",
        "\ufeff",
        "\u200e",
        "\u2060",
        "\u200d",
        "\u00ad",
        "\u034f",
        "\u3164",
        "\u2800",
        "\ufe0f",
        "\U000e0100",
    ],
)
@pytest.mark.parametrize("column", ["slide_id", "patient_id", "label"])
def test_a_character_that_nobody_sees_is_refused_with_the_way_to_write_it(
    folder: Path, column: str, hidden: str
) -> None:
    row = {"slide_id": "a", "path": "a.tif", "patient_id": "P1", "label": "tumor"}
    row[column] = f"{row[column][0]}{hidden}{row[column][1:]}x"
    (folder / "slides.csv").write_text(f"{','.join(row)}\n{','.join(row.values())}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"slides\.csv, row 2: {column} .*holds") as caught:
        read_slides(folder)
    assert ascii(hidden) in str(caught.value)


@pytest.mark.parametrize("label", ["NA", "N/A", "nan", "NaN", "NULL", "null", "None", "<NA>"])
def test_a_label_that_reads_as_missing_is_no_class(folder: Path, label: str) -> None:
    (folder / "slides.csv").write_text(f"slide_id,path,label\na,a.tif,tumor\nb,b.tif,{label}\n")
    with pytest.raises(ValueError, match=rf"slides\.csv, row 3: label is '{label}', which reads as missing"):
        read_slides(folder)


def test_none_in_small_letters_is_a_class(folder: Path) -> None:
    (folder / "slides.csv").write_text("slide_id,path,label\na,a.tif,brisk\nb,b.tif,none\n")
    assert read_slides(folder)["label"].tolist() == ["brisk", "none"]


def test_test_slides_are_marked_alone_or_every_slide_has_a_split(folder: Path) -> None:
    def read(*rows: str) -> list[str]:
        (folder / "slides.csv").write_text("slide_id,path,patient_id,split\n" + "\n".join(rows) + "\n")
        return [str(split) for split in read_slides(folder)["split"]]

    assert read("a,a.tif,P,", "b,b.tif,Q,test", "c,c.tif,,") == ["", "test", ""]
    assert own.pretraining_slides(folder)["slide_id"].tolist() == ["a", "c"]
    with pytest.raises(ValueError, match=r"row 3: no split, while other rows are for training or validation"):
        read("a,a.tif,P,train", "b,b.tif,Q,", "c,c.tif,R,test")
    with pytest.raises(
        ValueError, match=r"row 4: no split, but another slide of patient 'P' is for the test"
    ):
        read("a,a.tif,P,test", "b,b.tif,Q,", "c,c.tif,P,")
