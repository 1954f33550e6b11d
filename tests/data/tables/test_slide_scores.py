from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from histo_monai.data.tables.slide_scores import check_same_slides, read_slide_scores

TABLE = """slide_id,patient_id,split,label,size,finetuned_score,finetuned_score_by_seen,student_score
normal_001,,train,normal,,-1.5,-2,-1
test_001,P7,test,tumor,macro,0.25,1,0.5
test_002,,test,normal,,-0.75,-1,-0.125
"""


def _write(path: Path, text: str = TABLE) -> Path:
    path.write_text(text)
    return path


def test_test_slides_are_read_with_the_score_of_every_model(tmp_path: Path) -> None:
    table = read_slide_scores(_write(tmp_path / "slides.csv"))
    assert table.rows["slide_id"].tolist() == ["test_001", "test_002"]
    assert table.rows["patient_id"].tolist() == ["P7", ""]
    assert list(table.predictions) == ["finetuned", "student"]
    np.testing.assert_array_equal(table.predictions["student"], [0.5, -0.125])


def test_slides_without_a_diagnosis_have_no_models(tmp_path: Path) -> None:
    text = "slide_id,patient_id,split,label,size\na,,train,,\n"
    assert dict(read_slide_scores(_write(tmp_path / "slides.csv", text)).predictions) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "it has no column 'slide_id'"),
        (TABLE.replace("0.5\n", "\n"), "student has no score for slide test_001"),
        (TABLE.replace("-0.125", "low"), "student has no score for slide test_002"),
        ("", "it is empty"),
    ],
)
def test_another_table_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = _write(tmp_path / "slides.csv", text)
    with pytest.raises(ValueError, match=message) as caught:
        read_slide_scores(path)
    assert str(caught.value).startswith(str(path))


def test_a_missing_table_names_the_stage(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not found\. Fix: run `dvc repro aggregate`"):
        read_slide_scores(tmp_path / "slides.csv")


def test_tables_of_other_slides_are_not_compared(tmp_path: Path) -> None:
    first = read_slide_scores(_write(tmp_path / "a.csv"))
    check_same_slides(first, read_slide_scores(_write(tmp_path / "b.csv", TABLE.replace("-0.125", "3"))))
    for change in (("test_002", "test_003"), ("P7,test,tumor,macro", "P7,test,normal,")):
        other = read_slide_scores(_write(tmp_path / "b.csv", TABLE.replace(*change)))
        with pytest.raises(ValueError, match="different slides, labels or models"):
            check_same_slides(first, other)
