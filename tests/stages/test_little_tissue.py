"""A slide with next to no tissue is a warning of `check`, with its picture, however few pictures are asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from histo_monai.pipeline.cli import main
from tests.hostile.project import (
    OWN,
    SIDE_PX,
    all_of,
    edit,
    params_with,
    slide_pixels,
    write_own_project,
    write_slide,
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven small slides with labels; the last one is to be tested and has no labeled square."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_CPUS", "1")
    write_own_project()
    all_of(
        params_with(check__num_pictures=1),
        lambda: edit(
            OWN / "patches.csv", lambda text: "\n".join(x for x in text.splitlines() if "s6" not in x) + "\n"
        ),
    )()


def warnings_and_page() -> tuple[list[str], str]:
    assert main(["index"]) == main(["check"]) == 0
    data_warnings = json.loads(Path("data/check/metrics.json").read_text())["data_warnings"]
    return [line for line in data_warnings if "tissue: " in line], Path("data/check/index.html").read_text()


@pytest.mark.usefixtures("project")
def test_a_slide_of_glass_is_a_warning_with_its_picture() -> None:
    write_slide(OWN / "s6.tif", pixels=np.full((SIDE_PX, SIDE_PX, 3), 245, np.uint8))
    (line,), page = warnings_and_page()
    assert "s6" in line
    assert "<b>s6</b>" in page
    assert len(list(Path("data/check/slides").glob("*.jpg"))) == 2


@pytest.mark.usefixtures("project")
def test_a_slide_in_silver_is_none() -> None:
    gray = slide_pixels(6).mean(axis=2, keepdims=True).repeat(3, axis=2).astype(np.uint8)
    write_slide(OWN / "s6.tif", pixels=gray)
    lines, _ = warnings_and_page()
    assert lines == []
