from __future__ import annotations

import csv
import io
import os
import string
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from histo_monai.data.tables.csv_rows import read_rows
from histo_monai.data.tables.manifests import read_table

MODEST = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
CELLS = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from(["\n", '"', ",", "'", ";"]))
NAMES = st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=4), min_size=1, max_size=4, unique=True)


@st.composite
def _tables(draw: st.DrawFn) -> list[list[str]]:
    """A header and rows of stripped texts, none of which is blank."""
    header = draw(NAMES)
    row = st.lists(CELLS.map(str.strip), min_size=len(header), max_size=len(header)).filter(any)
    return [header, *draw(st.lists(row, min_size=1, max_size=6))]


def _written(rows: list[list[str]], quoting: int, end: str) -> tuple[str, list[int]]:
    """As csv.writer writes it, and the number of the line that each row below the header begins in."""
    text, starts = io.StringIO(newline=""), []
    for row in rows:
        # As an editor counts: line breaks inside quotes are lines too.
        starts.append(len(text.getvalue().split("\n")))
        csv.writer(text, quoting=quoting, lineterminator=end).writerow(row)  # type: ignore[arg-type]
    return text.getvalue(), starts[1:]


@MODEST
@given(_tables(), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), st.sampled_from(["\n", "\r\n"]))
def test_any_table_of_csv_writer_comes_back_each_row_under_its_line(
    tmp_path: Path, rows: list[list[str]], quoting: int, end: str
) -> None:
    text, starts = _written(rows, quoting, end)
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode())
    table = read_rows(path)
    assert table.columns.tolist() == rows[0]
    assert table.to_numpy().tolist() == rows[1:]
    assert table.index.tolist() == starts


@MODEST
@given(_tables(), st.data())
def test_a_row_with_a_value_too_many_or_too_few_is_named_by_its_line(
    tmp_path: Path, rows: list[list[str]], data: st.DataObject
) -> None:
    number = data.draw(st.integers(1, len(rows) - 1))
    blank = data.draw(st.integers(0, 3))
    damaged = data.draw(st.sampled_from([[*rows[number], "more"], [*rows[number], ""], rows[number][:-1]]))
    assume(any(damaged))
    text, starts = _written([*rows[:number], damaged, *rows[number + 1 :]], csv.QUOTE_ALL, "\n")
    first, *rest = text.split("\n", 1)
    path = tmp_path / "x.csv"
    path.write_text(first + "\n" * (1 + blank) + rest[0], newline="")
    with pytest.raises(ValueError, match=rf"x\.csv, row {starts[number - 1] + blank}: {len(damaged)} values"):
        read_rows(path)


@MODEST
@given(st.binary(max_size=80))
def test_any_bytes_are_a_table_or_one_line_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    message = ""
    try:
        assert not read_rows(path).columns.has_duplicates
    except ValueError as error:
        message = str(error)
    assert message.startswith(str(path) if message else "")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"x\.csv: not a csv \(the file is empty\)"),
        (b"\n\n", r"x\.csv: not a csv \(the file is empty\)"),
        (
            "a,b\n1,2\n".encode("utf-16"),
            r"x\.csv: is encoded in UTF-16",
        ),
        (
            "a,b\n1,ü\n".encode("latin-1"),
            r"x\.csv, row 2: not UTF-8 \(byte 0xfc; 'ü' if .*1252\)",
        ),
        ("a,b\n1,2\n".encode("utf-16-le"), r"x\.csv, row 1: holds a NUL character"),
        (b"a,b\n1,2\n\n3,\x004\n", r"x\.csv, row 4: holds a NUL character"),
        (b"a;b\n1;2\n", r"x\.csv: is separated by semicolons \(';'\)"),
        (b"a\tb\n1\t2\n", r"x\.csv: is separated by tabs"),
        (b"a,b,\n1,2,\n", r"x\.csv: column 3 of 3 has no name"),
        (b"a,b\n1,2,\n3,4,\n", r"x\.csv, row 2: 3 values, but the header names 2 columns"),
        (b"a,b, a \n1,2,3\n", r"x\.csv: two columns are named 'a'"),
        (b'a,b\n1,2\n3,"4\n', r"x\.csv, row 3: not a csv \(unexpected end of data\)"),
        (b'a,b\n1,"2"x\n', r"x\.csv, row 2: not a csv"),
    ],
)
def test_what_is_not_quite_a_csv_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_rows(path)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_blanks_around_values_and_old_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'\xef\xbb\xbfa , b\r 1 ,  "2, 3"\r\r4,5\r')
    table = read_rows(path)
    assert table.to_dict("list") == {"a": ["1", "4"], "b": ["2, 3", "5"]}
    assert table.index.tolist() == [2, 4]


def test_a_key_that_comes_twice_is_named_by_both_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('a,b\n\n1,"x\ny"\n\n2,z\n1,w\n')
    with pytest.raises(ValueError, match=r"row 7: a '1' is also in row 3"):
        read_table(path, needed=("a",))


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_what_is_no_plain_file_is_named_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.csv"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=rf"x\.csv: is a .*{kind}.*, not a file"):
        read_rows(path)


def test_a_first_line_that_names_the_comma_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("sep=,\nslide_id,path\na,a.tif\n")
    table = read_rows(path)
    assert table.to_dict("records") == [{"slide_id": "a", "path": "a.tif"}]
    assert table.index.tolist() == [3]  # the line in the file


def test_a_first_line_that_names_another_separator_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("sep=;\nslide_id;path\na;a.tif\n")
    with pytest.raises(ValueError, match=r"x\.csv: is separated by semicolons"):
        read_rows(path)


def test_a_hundred_thousand_columns_are_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(",".join(f"c{i}" for i in range(100_000)) + "\n" + ",".join(["1"] * 100_000) + "\n")
    began = time.process_time()
    assert read_rows(path).shape == (1, 100_000)
    assert time.process_time() - began < 20  # a minute and more where each name is looked for in a list


@pytest.mark.parametrize(("place", "value"), [(0, "Müller"), (1, "Straße 3"), (2, "5 µm")])
def test_a_value_of_code_page_1252_is_shown_as_windows_would(tmp_path: Path, place: int, value: str) -> None:
    path = tmp_path / "x.csv"
    cells = ["a", "b", "c"]
    cells[place] = value
    path.write_bytes(f"x,y,z\n1,2,3\n{','.join(cells)}\n".encode("cp1252"))
    with pytest.raises(ValueError, match=rf"x\.csv, row 3: not UTF-8 .*'{value}'"):
        read_rows(path)
