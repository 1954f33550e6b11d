"""Labeled pictures and no slide at all: an encoder as it is, everything after it, and nothing to map."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from histo_monai.pipeline.cli import main
from tests.hostile.project import OWN, STAGES, params_with, write_image, write_own_project, write_text


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_own_project()
    for path in OWN.iterdir():
        path.unlink()
    rows = ["path,label,patient_id,split"]
    for i in range(24):
        write_image(OWN / f"{i}.png", i)
        split = ("train", "train", "train", "validation", "test", "test")[i // 2 % 6]
        rows.append(f"{i}.png,{('tumor', 'normal')[i % 2]},{split}{i // 12},{split}")
    write_text(OWN / "patches.csv", "\n".join(rows) + "\n")


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_every_stage_ends() -> None:
    for call in (STAGES[0], ("check",), *STAGES[1:]):
        assert main(call) == 0, call
    assert pd.read_csv("data/index/slides.csv").empty
    assert "Ready to train" in Path("data/check/index.html").read_text()
    assert len(pd.read_csv("data/evaluation/random-0-paper-0/predictions.csv").query("split == 'test'")) == 8
    assert "## Test: 2 patients" in Path("data/comparison/report.md").read_text()
    assert json.loads(Path("data/models/random-0/metrics.json").read_text())["num_validation"] == 0
    diagnosis = json.loads(Path("data/diagnosis/random-0-paper-0/metrics.json").read_text())
    assert diagnosis["warnings"][0].startswith("no diagnosis of slides")
    assert "test_slide_auc" not in json.loads(Path("data/comparison/summary.json").read_text())
    assert main(("verify",)) == 0


@pytest.mark.usefixtures("project")
def test_a_method_that_learns_from_slides_asks_for_some(capsys: pytest.CaptureFixture[str]) -> None:
    params_with(pretraining_methods=["random", "rsp"])()
    assert main(STAGES[0]) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "data/raw/own/slides.csv: not found, but rsp trains on slides" in line
    assert "pretraining_methods: [random]" in line
