"""Slides of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SLIDES = "slide_id,path,patient_id,mpp,split\na,a.tif,anna,,train\nb,b.tif,bob,0.5,test\n"


@pytest.fixture
def folder(tmp_path: Path, write_slide: Callable[..., Path]) -> Path:
    """Two slides of 512 × 640 px: 1 µm/px by the file, and 0.5 by the manifest."""
    for number, name in enumerate("ab"):
        write_slide(tmp_path / f"{name}.tif", number)
    (tmp_path / "slides.csv").write_text(SLIDES)
    return tmp_path
