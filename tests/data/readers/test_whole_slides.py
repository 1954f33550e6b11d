from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from histo_monai.data.leakage.review import with_splits_of_patches
from histo_monai.data.readers.own import reader as own
from histo_monai.data.tables.columns import corpus_slides, read_whole_slides, whole_slide_table


def test_own_slides_bring_their_labels_outlines_and_splits(tmp_path: Path) -> None:
    (tmp_path / "slides.csv").write_text(
        "slide_id,path,patient_id,mpp,label,split\na,a.svs,P1,,tumor,test\nb,b.svs,P2,0.25,normal,train\n"
    )
    (tmp_path / "annotations").mkdir()
    for name in ("a.geojson", "b.xml", ".notes.txt"):
        (tmp_path / "annotations" / name).write_text("")
    table, warnings = own.whole_slides(tmp_path)
    assert warnings == []
    assert table["label"].tolist() == ["tumor", "normal"]
    assert table["split"].tolist() == ["test", "train"]
    assert [Path(path).name for path in table["annotation"]] == ["a.geojson", "b.xml"]
    assert table["mpp"].isna().tolist() == [True, False]


def test_own_slides_without_a_split_go_with_their_patches_or_their_patient_and_else_into_training(
    tmp_path: Path,
) -> None:
    (tmp_path / "slides.csv").write_text(
        "slide_id,path,patient_id\na,a.svs,P\nb,b.svs,Q\nc,c.svs,\nd,d.svs,P\ne,e.svs,Q\n"
    )
    table, _ = own.whole_slides(tmp_path)
    assert table["label"].tolist() == [""] * 5
    rows = [("a", "P", "validation"), ("b", "Q", "test"), ("b", "Q", "test")]
    patches = pd.DataFrame(rows, columns=["slide_id", "patient_id", "split"])
    split = with_splits_of_patches(table, patches)["split"]
    assert split.tolist() == ["validation", "test", "train", "validation", "test"]


def test_a_split_that_is_given_is_kept_but_for_that_of_patches_and_a_test_slide_stays_one() -> None:
    given = [("a", "", "train"), ("b", "", "test"), ("c", "P", "train"), ("d", "", "test")]
    slides = whole_slide_table(
        [{"slide_id": name, "path": "", "patient_id": who, "split": split} for name, who, split in given]
    )
    rows = [("a", "", "validation"), ("b", "", "train"), ("x", "P", "test")]
    patches = pd.DataFrame(rows, columns=["slide_id", "patient_id", "split"])
    assert with_splits_of_patches(slides, patches)["split"].tolist() == [
        "validation",
        "test",
        "train",
        "test",
    ]


def test_a_table_of_whole_slides_with_an_id_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "whole_slides.csv"
    whole_slide_table([{"slide_id": "../a", "path": "a.tif", "split": "test"}]).to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"whole_slides\.csv: slide_id '\.\./a' .*holds '/'"):
        read_whole_slides(path)


def test_a_corpus_is_mapped_without_labels() -> None:
    slides = pd.DataFrame(
        {
            "slide_id": ["a"],
            "path": ["a.svs"],
            "patient_id": [""],
            "mpp": [0.5],
            "split": ["train"],
            "height_px": [9],
            "content": ["c0ffee"],
        }
    )
    table = corpus_slides(slides)
    assert table.iloc[0].to_dict() == {
        "slide_id": "a",
        "path": "a.svs",
        "patient_id": "",
        "mpp": 0.5,
        "label": "",
        "size": "",
        "split": "train",
        "annotation": "",
        "annotation_origin": "",
        "exhaustive": True,
        "content": "c0ffee",
        "outlines": "",
    }
    assert corpus_slides(slides.iloc[:0]).empty


def test_the_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    rows = [
        {
            "slide_id": "001",
            "path": Path("x/001.tif"),
            "label": "tumor",
            "size": "macro",
            "split": "test",
            "mpp": 0.25,
        },
        {"slide_id": "NA", "path": Path("x/NA.tif"), "split": "train", "exhaustive": False},
    ]
    table = whole_slide_table(rows)
    table.to_csv(tmp_path / "whole_slides.csv", index=False)
    pd.testing.assert_frame_equal(read_whole_slides(tmp_path / "whole_slides.csv"), table)
    whole_slide_table([]).to_csv(tmp_path / "none.csv", index=False)
    assert read_whole_slides(tmp_path / "none.csv").empty


@pytest.mark.parametrize("text", [None, "", "a,b\n1,2\n"])
def test_another_table_is_refused_with_the_stage_that_makes_it(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "whole_slides.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=r"Fix: run `dvc repro index`"):
        read_whole_slides(path)
