"""Tables are read as they are written, and in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from histo_monai.utils.errors import InputError
from histo_monai.utils.files.csv_values import read_texts, read_varied_csv

ODD = ("NA", "nan", "None", "null", "inf", "1e5", "TRUE", "007", "01.10", "N/A", "-1", "1,000", " x")
PANDAS_READERS = {"read_csv", "read_table", "read_fwf", "read_excel", "from_csv"}


def test_ids_come_back_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("slide_id,num,note\n" + "".join(f'"{one}",{i},\n' for i, one in enumerate(ODD)))
    table = read_varied_csv(path, ["slide_id", "absent"], stage="index")
    assert table["slide_id"].tolist() == list(ODD)
    assert table["num"].tolist() == list(range(len(ODD)))
    assert read_texts(path, ["num", "slide_id"])["slide_id"].tolist() == list(ODD)


def test_only_an_empty_number_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("slide_id,value,verdict\n,1,NA\ns,,better\n")
    table = read_varied_csv(path, ["slide_id"], stage="index")
    assert table["slide_id"].tolist() == ["", "s"]
    assert table["value"].isna().tolist() == [False, True]
    assert table["verdict"].tolist() == ["NA", "better"]


@pytest.mark.parametrize("text", ["", "\n", "a,b\n1,2,3\n", "a,b\n1,2", 'a,b\n"1,2\n'])
def test_what_is_no_whole_table_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"t\.csv: .*run `dvc repro compare` again"):
        read_varied_csv(path, stage="compare")


def test_a_table_without_the_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id\n1\n")
    with pytest.raises(InputError, match=r"t\.csv: not a csv with the columns slide_id"):
        read_texts(path, ["slide_id"])


def test_pandas_reads_tables_in_one_module(root: Path) -> None:
    reading = {
        path.relative_to(root).as_posix()
        for path in (root / "histo_monai").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in PANDAS_READERS
        and getattr(node.value, "id", "") in ("pd", "pandas")
    }
    assert reading == {"histo_monai/utils/files/csv_values.py"}
