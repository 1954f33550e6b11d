"""Outlines in masks/ and the rules for artefacts, from `index` to `check` and to the cells of maps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.tables.columns import read_centers, read_whole_slides
from histo_monai.data.tables.patches import read_patches
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.params import load_params
from histo_monai.pipeline.stages.features import _jobs
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.wsi.heatmaps.origin import Origins
from histo_monai.wsi.inference.models import MapPlan
from histo_monai.wsi.inference.stream import SlidePatches
from tests.hostile.project import OWN, params_with, slide_pixels, write_own_project, write_slide
from tests.slides.test_artefacts import outlined

GREEN = (60, 170, 90)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven slides of 1 µm/px; on s0 the upper half is outlined as an artefact, on s1 the left 200 px are ink."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_CPUS", "1")
    write_own_project()
    (OWN / "masks").mkdir()
    outlined(OWN / "masks/s0.geojson", artefact=(0, 200))
    pixels = slide_pixels(1)
    pixels[:, :200] = (pixels[:, :200] * (np.array(GREEN) / 255)).astype(np.uint8)
    write_slide(OWN / "s1.tif", pixels=pixels)
    params_with(index__artefacts=["pen"], labels__own__unlabeled=60)()


def _tables() -> dict[str, pd.DataFrame]:
    index = Path("data/index")
    return {
        "centers": read_centers(index / "centers.csv"),
        "unlabeled": read_patches(index / "unlabeled.csv"),
        "patches": read_patches(index / "patches.csv"),
    }


def _on_artefacts(rows: pd.DataFrame) -> int:
    """Rows whose patch of 32 µm lies mostly in the outline of s0, or on the ink of s1."""
    in_outline = (rows["slide_id"] == "s0") & (rows[["y", "x"]].max(axis=1) < 196)
    return int((in_outline | ((rows["slide_id"] == "s1") & (rows["x"] < 180))).sum())


def test_artefacts_are_not_used_but_labels_stay() -> None:
    assert main(["index"]) == 0
    tables = _tables()
    assert _on_artefacts(tables["centers"]) == _on_artefacts(tables["unlabeled"]) == 0
    params_with(index__artefacts=[])()
    (OWN / "masks/s0.geojson").unlink()
    assert main(["index"]) == 0
    before = _tables()
    assert _on_artefacts(before["centers"]) > 0
    assert _on_artefacts(before["unlabeled"]) > 0
    pd.testing.assert_frame_equal(tables["patches"], before["patches"])


def test_check_shows_what_is_not_used_and_names_the_labels_on_it() -> None:
    assert main(["index"]) == main(["check"]) == 0
    data_warnings = json.loads(Path("data/check/metrics.json").read_text())["data_warnings"]
    (line,) = [line for line in data_warnings if "outlined artefacts" in line]
    assert line.startswith("3 of 28 labeled patches")  # one of s0, two of s1
    page = Path("data/check/index.html").read_text()
    assert "tissue not used" in page
    assert "<td>s1</td><td>" in page
    params_with(index__artefacts=[])()
    (OWN / "masks/s0.geojson").unlink()
    assert main(["index"]) == main(["check"]) == 0
    assert "not used" not in Path("data/check/index.html").read_text()


def test_cells_of_maps_follow_the_outlines_and_only_their_slide_is_mapped_again() -> None:
    assert main(["index"]) == 0
    slides = read_whole_slides(Path("data/index/whole_slides.csv"))
    plan = MapPlan(32, 1.0, 32.0, TissueRules(16.0, load_params(Path("params.yaml")).index.artefacts), 0.5, 8)
    jobs = {job.slide_id: job for job in _jobs(slides, {})}
    found = SlidePatches.find(jobs["s0"].path, None, plan, jobs["s0"].outlines)
    assert not ((found.cells + 1) * 32 <= 200).all(axis=1).any()
    assert len(found.cells) < len(SlidePatches.find(jobs["s0"].path, None, plan).cells)
    origins = Origins((), plan.settings)
    before = {name: job.origin(origins) for name, job in jobs.items()}
    outlined(OWN / "masks/s0.geojson", artefact=(0, 300))
    assert [name for name, job in jobs.items() if job.origin(origins) != before[name]] == ["s0"]


def test_a_bad_file_of_outlines_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    (OWN / "masks/s0.geojson").write_text("{}")
    assert main(["index"]) != 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "masks/s0.geojson" in line]
    assert len(lines) == 1
    assert "Fix: " in lines[0]


def test_statistics_of_the_encoder_follow_the_outlines() -> None:
    learned = {"slide_level__pretraining_methods": ["random"], "finetune__mode": "head"}
    params_with(encoder__name="resnet18", semisupervised_methods=["supervised"], **learned)()
    params_with(features__batchnorm_patches=64, slide_level__semisupervised_methods=["supervised"])()
    stages = [["index"], ["pretrain", "--method", "random"], ["features", "--method", "random"]]
    file, contents = Path("data/features/random-0/encoder.safetensors"), []
    for artefact in ((0, 200), (0, 200), (0, 400)):
        outlined(OWN / "masks/s0.geojson", artefact=artefact)
        for call in stages:
            assert main(call) == 0
        contents.append(file.read_bytes())
    assert contents[0] == contents[1]
    shutil.rmtree("data/features")
    assert main(stages[-1]) == 0
    assert contents[1] != contents[2] == file.read_bytes()
