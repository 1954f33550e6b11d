from __future__ import annotations

from pathlib import Path

import pytest

from histo_monai.data.readers.breastpathq import reader as breastpathq
from histo_monai.data.readers.camelyon16 import reader as camelyon16
from histo_monai.data.readers.own import reader as own


def _touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_camelyon16_takes_the_first_slides_by_number_in_either_case(tmp_path: Path) -> None:
    _touch(
        tmp_path, *(f"training/normal/Normal_{n:03d}.tif" for n in (3, 1, 2)), "training/tumor/tumor_002.tif"
    )
    _touch(
        tmp_path, "training/tumor/tumor_001.TIF", "training/normal/notes.txt", "testing/images/test_001.tif"
    )
    table = camelyon16.pretraining_slides(tmp_path, num_normal=2, num_tumor=1)
    assert table["slide_id"].tolist() == ["normal_001", "normal_002", "tumor_001"]
    assert [Path(path).name for path in table["path"]] == [
        "Normal_001.tif",
        "Normal_002.tif",
        "tumor_001.TIF",
    ]


def test_camelyon16_with_too_few_slides_names_the_folder_and_the_key(tmp_path: Path) -> None:
    _touch(tmp_path, "training/normal/normal_001.tif")
    with pytest.raises(
        ValueError, match=r"training/normal: 1 slides .*corpora\.camelyon16\.num_normal asks for 2"
    ):
        camelyon16.pretraining_slides(tmp_path, num_normal=2, num_tumor=0)


def test_camelyon16_with_two_files_of_one_slide_is_refused(tmp_path: Path) -> None:
    _touch(tmp_path, "training/normal/normal_001.tif", "training/normal/Normal_001.tif")
    with pytest.raises(ValueError, match="second file for slide normal_001"):
        camelyon16.pretraining_slides(tmp_path, num_normal=1, num_tumor=0)


def test_breastpathq_finds_slides_in_any_sub_folder_and_their_patient(tmp_path: Path) -> None:
    _touch(
        tmp_path,
        "Post-NAT-BRCA/99861.svs",
        "a/b/99862_1.SVS",
        "a/b/99862_2.svs",
        "breastpathq/datasets/train/1_1.tif",
    )
    table = breastpathq.pretraining_slides(tmp_path)
    assert dict(zip(table["slide_id"], table["patient_id"], strict=True)) == {
        "99861": "99861",
        "99862_1": "99862",
        "99862_2": "99862",
    }
    with pytest.raises(ValueError, match=r"no \*\.svs slide"):
        breastpathq.pretraining_slides(tmp_path / "breastpathq")


def _manifest(folder: Path, text: str) -> Path:
    (folder / "slides.csv").write_text(text)
    return folder


def test_own_slides_come_from_the_manifest_relative_to_it(tmp_path: Path) -> None:
    table = own.pretraining_slides(
        _manifest(
            tmp_path,
            "slide_id, path, mpp, split\na, x/a.svs, 0.25, train\nb,/abs/b.tif,,validation\nc,c.tif,,test\n",
        )
    )
    assert table["slide_id"].tolist() == ["a", "b"]
    assert table["path"].tolist() == [tmp_path / "x/a.svs", Path("/abs/b.tif")]
    assert table["mpp"].tolist()[0] == 0.25
    assert table["mpp"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slide_id,path\na,1.tif\na,2.tif\n", "row 3: slide_id 'a' is also in row 2"),
        ("slide_id\na\n", "column 'path' is missing"),
        ("slide_id,path,stain\na,1.tif,HE\n", "unknown column 'stain'"),
        ("slide_id,path\n", "no row below the header"),
        ("", "not a csv"),
        ("slide_id,path\na,\n", "row 2: path is empty"),
        ("slide_id,path,mpp\na,1.tif,0.25\nb,2.tif,20x\n", "row 3: mpp is '20x'"),
        ("slide_id,path,mpp\na,1.tif,250\n", "row 2: mpp is '250'"),
        ("slide_id,path,split\na,1.tif,train\nb,2.tif,\n", "row 3: no split"),
        ("slide_id,path,split\na,1.tif,training\n", "row 2: split is 'training'"),
        ("slide_id,path,split\na,1.tif,test\n", "the corpus has no slide"),
    ],
)
def test_a_bad_manifest_is_one_line_that_names_file_and_row(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the message is what is tested
        own.pretraining_slides(_manifest(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_error_for_a_missing_manifest_states_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"slides\.csv: not found.* slide_id,path"):
        own.pretraining_slides(tmp_path)


def test_breastpathq_follows_links_to_folders(tmp_path: Path) -> None:
    _touch(tmp_path / "elsewhere", "1_1.svs")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/slides").symlink_to(tmp_path / "elsewhere")
    assert breastpathq.pretraining_slides(tmp_path / "data")["slide_id"].tolist() == ["1_1"]
