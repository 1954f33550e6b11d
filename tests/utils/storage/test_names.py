from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from histo_monai.utils.storage import MAX_NAME_BYTES, check_name


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "tumor_001",
        "TCGA-CR-7395-01A-01-TS1.f2",
        "Schnitt 7 (HE)",
        "胃-3",
        "CONTROL",
        "a.map.b",
        "x" * 200,
    ],
)
def test_usual_names_are_names(name: str) -> None:
    check_name(name, "here")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("batch1/skin", "holds '/'. Fix: write 'batch1_skin'"),
        ("batch1\\skin", r"holds '\\'. Fix: write 'batch1_skin'"),
        ("../../models/x", "holds '/'. Fix: write '_.._models_x'"),
        ("/etc/passwd", "holds '/'. Fix: write '_etc_passwd'"),
        ("..", "has only dots and blanks. Fix: write 'slide'"),
        (" ", "has only dots and blanks"),
        (".hidden", "begins with a dot. Fix: write 'hidden'"),
        ("skin ", "begins or ends with a blank or ends with a dot. Fix: write 'skin'"),
        ("skin.", "begins or ends with a blank or ends with a dot. Fix: write 'skin'"),
        ("a\0b", r"holds '\x00'. Fix: write 'a_b'"),
        ("a\nb", r"holds '\n'. Fix: write 'a_b'"),
        ("a\u200bb", r"holds '\u200b'. Fix: write 'a_b'"),
        ("a\udcffb", r"holds '\udcff'. Fix: write 'a_b'"),
        ("S12:7", "holds ':'. Fix: write 'S12_7'"),
        ("a*", "holds '*'. Fix: write 'a_'"),
        ("nul", "is the name of a device on Windows. Fix: write 'nul_1'"),
        ("COM3.x", "is the name of a device on Windows. Fix: write 'COM3_x_1'"),
        ("skin.map", "ends in .map, as maps of slides do. Fix: write 'skin_map_1'"),
        ("x" * 201, "has 201 bytes, more than 200. Fix: shorten it"),
        ("胃" * 67, "has 201 bytes, more than 200. Fix: shorten it"),
    ],
)  # fmt: skip
def test_names_that_cannot_be_files_are_refused_with_the_way_to_write_them(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        check_name(name, "slides.csv, row 3: slide_id")
    assert str(caught.value).startswith("slides.csv, row 3: slide_id '")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1))
def test_every_name_that_passes_can_be_written_beside_others_and_stays_in_its_folder(
    tmp_path: Path, name: str
) -> None:
    try:
        check_name(name, "here")
    except ValueError as error:
        written = re.search(r"write '(.*)'; files", str(error))
        if written:
            check_name(written[1], "here")
        return
    path = tmp_path / f".{name}.draft.overlay.geojson"
    assert path.parent == tmp_path
    assert (tmp_path / f"{name}.csv").resolve().parent == tmp_path.resolve()
    path.write_text("")
    path.unlink()
    assert len(name.encode()) <= MAX_NAME_BYTES
