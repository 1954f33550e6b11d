"""All stages with slides whose ids read as missing values, numbers or truths, on a console that knows ASCII alone."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tifffile

from tests.hostile.project import OWN, RUN, STAGES, STUDENT, slide_pixels, write_own_project, write_text

IDS = {
    "NA": "train",
    "nan": "train",
    "None": "train",
    "null": "train",
    "inf": "train",
    "1e5": "train",
    "TRUE": "validation",
    "007": "test",
    "01.10": "test",
    "µm": "test",
    "-1": "test",
}
PROGRAM = """
import json, sys
from histo_monai.finetuning import learners
from histo_monai.pipeline.cli import main
learners.TREES_IN_FOLDS = 5
for call in json.loads(sys.argv[1]):
    if main(call) != 0:
        sys.exit(f"refused: {call}")
"""


def run_all(folder: Path, calls: list[list[str]]) -> str:
    environment = os.environ | {
        "PYTHONIOENCODING": "ascii",
        "HISTO_MONAI_DEVICE": "cpu",
        "HISTO_MONAI_WORKERS": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(calls)],
        cwd=folder,
        env=environment,
        capture_output=True,
        check=False,
    )
    printed = (done.stdout + done.stderr).decode("ascii")
    assert done.returncode == 0, printed[-3000:]
    return printed


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """After all stages, `check`, `suggest`, `map` and `verify`."""
    folder = tmp_path_factory.mktemp("ids")
    here = Path.cwd()
    os.chdir(folder)
    try:
        write_own_project()
        write_odd_slides()
    finally:
        os.chdir(here)
    calls = [*STAGES[:1], ("check",), *STAGES[1:], ("suggest", *RUN)]
    calls += [("map", "--manifest", str(OWN / "slides.csv"), "--model", str(STUDENT), "--output", "maps")]
    run_all(folder, [list(call) for call in [*calls, ("verify",)]])
    return folder


def write_odd_slides() -> None:
    slides, patches = ["slide_id,path,patient_id,label,split"], ["patch_id,slide_id,y,x,mpp,label,split"]
    for i, (slide_id, split) in enumerate(IDS.items()):
        resolution = {"resolution": (10_000, 10_000), "resolutionunit": "CENTIMETER"}
        pixels = slide_pixels(i)
        tifffile.imwrite(OWN / f"{slide_id}.tif", pixels, tile=(128, 128), photometric="rgb", **resolution)
        slides.append(f"{slide_id},{slide_id}.tif,{slide_id},{('tumor', 'normal')[i % 2]},{split}")
        for k, (y, x) in enumerate(((150, 150), (150, 250), (350, 150), (350, 250))):
            patch_id = slide_id if k == 0 else f"{slide_id}.{k}"
            patches.append(
                f"{patch_id},{slide_id},{y},{x},1,{('tumor', 'normal')[(y + x) // 100 % 2]},{split}"
            )
    write_text(OWN / "slides.csv", "\n".join(slides) + "\n")
    write_text(OWN / "patches.csv", "\n".join(patches) + "\n")


def column(path: Path, name: str) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row[name] for row in csv.DictReader(file)]


@pytest.mark.slow
def test_every_table_has_every_id(project: Path) -> None:
    data = project / "data"
    every = set(IDS)
    tested = {name for name, split in IDS.items() if split == "test"}
    for path, expected in (
        (data / "index/slides.csv", {name for name in every if name not in tested}),
        (data / "index/whole_slides.csv", every),
        (data / "index/patches.csv", every),
        (data / "evaluation/random-0-paper-0/predictions.csv", {n for n, s in IDS.items() if s != "train"}),
        (data / "heatmaps/random-0-paper-0/slides.csv", every),
        (data / "diagnosis/random-0-paper-0/slides.csv", every),
    ):
        assert expected == set(column(path, "slide_id")), path
    patients = column(data / "models/random-0-paper-0/student/folds/folds.csv", "patient")
    assert set(patients) == {f"patient {name}" for name, split in IDS.items() if split == "train"}


@pytest.mark.slow
def test_every_file_of_a_slide_has_its_name(project: Path) -> None:
    scores = project / "data/heatmaps/random-0-paper-0/scores"
    assert {path.stem for path in scores.glob("*.csv")} == set(IDS)
    assert {path.name.partition(".map")[0] for path in (project / "maps").glob("*.map.json")} == set(IDS)


@pytest.mark.slow
def test_the_page_shows_every_slide(project: Path) -> None:
    page = (project / "data/report/index.html").read_text(encoding="utf-8")
    missing = [name for name in IDS if f">{name}<" not in page]
    assert not missing
