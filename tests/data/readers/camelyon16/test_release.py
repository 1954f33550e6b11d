from __future__ import annotations

from pathlib import Path

import pytest

from histo_monai.data.readers.camelyon16 import release as camelyon16_files


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("test_001,Tumor,IDC,Macro\ntest_002,Normal,None,None\n", "macro"),
        ("test_001,Tumor\ntest_002,Normal\n", ""),
        ("image,type\nTest_001.tif,tumor\nTest_002.tif,normal\n", ""),
        (
            "\ufeffname,class,type,size\r\n TEST_001 , Tumor ,IDC,Macro\r\n\r\nTEST_002.TIF,Normal,None,None\r\n",
            "macro",
        ),
    ],
)
def test_every_kind_of_reference_csv_is_read_alike(tmp_path: Path, text: str, size: str) -> None:
    path = tmp_path / "reference.csv"
    path.write_bytes(text.encode())
    assert camelyon16_files.read_reference(path) == {
        "test_001": camelyon16_files.Reference("tumor", size),
        "test_002": camelyon16_files.Reference("normal"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("test_001,Tumor\ntest_002\n", "row 2: 'test_002'"),
        ("test_001,Tumor\nslide_2,Normal\n", "row 2: 'slide_2,Normal'"),
        ("test_001,Metastasis\n", "row 1: 'test_001,Metastasis'"),
        ("test_001,Tumor,IDC\n", "row 1: 'test_001,Tumor,IDC'"),
        ("test_001,Tumor\nTest_001.tif,Normal\n", "row 2: test_001"),
        ("name,class\n", "no row with a test slide"),
        ("", "no row with a test slide"),
    ],
)
def test_a_bad_reference_csv_is_one_line_that_names_file_and_row(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "reference.csv"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the message is what is tested
        camelyon16_files.read_reference(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("groups", "num_tumors", "num_holes"),
    [(["Tumor", "_0", "_1"], 3, 0), (["Tumor", "_2", "Exclusion"], 1, 2)],
)
def test_groups_are_tumor_or_holes(
    tmp_path: Path, groups: list[str], num_tumors: int, num_holes: int
) -> None:
    lesions = camelyon16_files.read_lesions(write_xml(tmp_path, groups))
    assert [one.group for one in lesions.outlines] == groups[:num_tumors]
    assert [one.group for one in lesions.holes] == groups[num_tumors : num_tumors + num_holes]


def test_an_unknown_group_and_a_file_without_a_tumor_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"test_001\.xml, annotation 'A1': group 'Stroma' is unknown"):
        camelyon16_files.read_lesions(write_xml(tmp_path, ["Tumor", "Stroma"]))
    with pytest.raises(ValueError, match=r"test_001\.xml: outlines holes only"):
        camelyon16_files.read_lesions(write_xml(tmp_path, ["Exclusion"]))
    with pytest.raises(ValueError, match=r"test_001\.xml: outlines no tumor"):
        camelyon16_files.read_lesions(write_xml(tmp_path, ["None"]))


def test_what_is_in_no_group_is_neither_tumor_nor_a_hole_and_is_reported(tmp_path: Path) -> None:
    lesions = camelyon16_files.read_lesions(write_xml(tmp_path, ["Tumor", "None", "_2"]))
    assert [one.group for one in lesions.outlines] == ["Tumor"]
    assert [one.group for one in lesions.unclear] == ["None"]
    assert [str(one) for one in lesions.left_out] == [
        f"{tmp_path / 'test_001.xml'}: 1 outline in no group left out: 'A1'"
    ]


def write_xml(folder: Path, groups: list[str]) -> Path:
    points = "".join(f'<Coordinate Order="{i}" X="{i % 2}" Y="{i // 2}" />' for i in range(3))
    annotations = "".join(
        f'<Annotation Name="A{i}" Type="Polygon" PartOfGroup="{group}">'
        f"<Coordinates>{points}</Coordinates></Annotation>"
        for i, group in enumerate(groups)
    )
    path = folder / "test_001.xml"
    path.write_text(f"<ASAP_Annotations><Annotations>{annotations}</Annotations></ASAP_Annotations>")
    return path
