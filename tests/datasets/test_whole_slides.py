from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from histo_monai.datasets import own
from histo_monai.datasets.tables import read_whole_slides, whole_slide_table
from histo_monai.datasets.whole_slides import corpus_slides


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


def test_own_slides_without_a_split_are_never_test_slides(tmp_path: Path) -> None:
    (tmp_path / "slides.csv").write_text("slide_id,path\na,a.svs\nb,b.svs\n")
    table, _ = own.whole_slides(tmp_path)
    assert table["split"].tolist() == ["train", "train"]
    assert table["label"].tolist() == ["", ""]


def test_a_corpus_is_mapped_without_labels() -> None:
    slides = pd.DataFrame(
        {
            "slide_id": ["a"],
            "path": ["a.svs"],
            "patient_id": [""],
            "mpp": [0.5],
            "split": ["train"],
            "height_px": [9],
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
        "exhaustive": True,
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
    with pytest.raises(ValueError, match="run `dvc repro index` first"):
        read_whole_slides(path)
