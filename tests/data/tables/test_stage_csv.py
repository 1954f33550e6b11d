from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.tables.stage_csv import read_stage_csv

TYPES = {"slide_id": "str", "y": "int64", "mpp": "float64", "split": "str"}
SPLITS = ("train", "test")
TEXT = 'slide_id,y,mpp,split\n001,7,0.25,train\nNA,-8,,test\n"a, b",9,1e-3,test\n'


def _read(path: Path, text: str | bytes, **more: bool) -> pd.DataFrame:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_stage_csv(path, TYPES, stage="index", key=["slide_id"], among={"split": SPLITS}, **more)


def test_what_was_written_comes_back_with_its_types(tmp_path: Path) -> None:
    table = _read(tmp_path / "t.csv", TEXT)
    assert table["slide_id"].tolist() == [
        "001",
        "NA",
        "a, b",
    ]  # neither numbers nor what pandas takes for missing
    assert table["y"].tolist() == [7, -8, 9]
    np.testing.assert_array_equal(table["mpp"], [0.25, np.nan, 0.001])
    assert [str(kind) for kind in table.dtypes] == ["str", "int64", "float64", "str"]
    assert _read(tmp_path / "t.csv", TEXT.splitlines()[0] + "\n").empty


def test_columns_of_models_may_follow(tmp_path: Path) -> None:
    lines = TEXT.splitlines()
    wide = "\n".join([f"{lines[0]},score", *(f"{line},{i}.5" for i, line in enumerate(lines[1:]))]) + "\n"
    assert _read(tmp_path / "t.csv", wide, more=True)["score"].tolist() == [0.5, 1.5, 2.5]
    with pytest.raises(ValueError, match="its columns are not slide_id, y, mpp, split"):
        _read(tmp_path / "t.csv", wide)


@pytest.mark.parametrize("length", range(len(TEXT)))
def test_a_table_that_was_cut_off_is_refused_unless_whole_rows_are_gone(tmp_path: Path, length: int) -> None:
    if TEXT[:length].endswith("\n"):
        assert len(_read(tmp_path / "t.csv", TEXT[:length])) == TEXT[:length].count("\n") - 1
        return
    with pytest.raises(ValueError, match=r"t\.csv: incomplete .*run `dvc repro index` again"):
        _read(tmp_path / "t.csv", TEXT[:length])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace(",7,", ",top,"), "not the table that the stage writes"),
        (TEXT.replace(",7,", ",,"), "not the table that the stage writes"),
        (TEXT.replace(",7,", ",7.5,"), "not the table that the stage writes"),
        (TEXT.replace(",7,", ",inf,"), "not the table that the stage writes"),
        (TEXT.replace(",7,", ",1" + "0" * 30 + ","), "not the table that the stage writes"),
        (TEXT.replace(",7,", ",7,7,"), "not the table that the stage writes"),
        ("slide_id,y,mpp,split\n1,2,3,train,4\n5,6,7,test,8\n", "not the table that the stage writes"),
        (TEXT.replace("mpp", "um"), "it has no column 'mpp'"),
        (TEXT.replace("0.25", "inf"), "row 2: expected mpp: a finite number"),
        (TEXT.replace("train", "dev"), "row 2: expected split: one of train, test"),
        (TEXT.replace(",-8,,test", ",-8"), "row 3: expected split: one of train, test"),
        (TEXT + "001,8,,test\n", "row 5: expected slide_id: one that no other row has"),
        (TEXT.replace("001", "../1"), "holds '/'"),
        (b"\xff\xfe" * 50 + b"\n", "it has no column 'slide_id'"),
        (TEXT.encode().replace(b"001", b"\xff\x01"), "not the table that the stage writes"),
    ],
)  # fmt: skip
def test_what_no_stage_writes_is_one_line_with_the_file(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=r"t\.csv") as caught:
        _read(tmp_path / "t.csv", text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_errors_for_a_missing_table_and_for_a_folder_name_the_command_to_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"t\.csv: not found\. Fix: run `dvc repro index`"):
        read_stage_csv(tmp_path / "t.csv", TYPES, stage="index")
    with pytest.raises(ValueError, match=r"is a folder, not a file\. Fix: run `dvc repro index` again"):
        read_stage_csv(tmp_path, TYPES, stage="index")
