"""Own slides that are known by their label alone: every stage ends, and slides are taken for what they are."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.models.task_model import load_encoder
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.skip import NO_PATCHES
from histo_monai.wsi.heatmaps.heatmap import read_heatmap
from tests.folders import NewFolder, work_in_copy
from tests.hostile.project import (
    OWN,
    RUN,
    STAGES,
    params_with,
    slide_pixels,
    with_cell,
    write_own_project,
    write_slide,
    write_text,
)

NUM = 16
_GRAYS = itertools.count(60)
MIL = Path("data/mil/random-0-0")
ORDER = (STAGES[0], ("check",), *STAGES[1:])
FEATURES_STAGE = ("features", "--method", "random")


def _write(tested: int) -> None:
    """Every second slide has a dark corner, and is called odd; the last ones are tested on."""
    write_own_project()
    (OWN / "patches.csv").unlink()
    rows = ["slide_id,path,label,patient_id,split"]
    for i in range(NUM):
        pixels = slide_pixels(i)
        if i % 2:
            pixels[300:420, 300:420] = (90, 40, 110)
        write_slide(OWN / f"s{i}.tif", pixels=pixels)
        split = "test" if i >= NUM - tested else "validation" if i in (0, 1) else "train"
        rows.append(f"s{i},s{i}.tif,{'odd' if i % 2 else 'plain'},P{i},{split if tested else ''}")
    write_text(OWN / "slides.csv", "\n".join(rows) + "\n")
    params_with(mil__epochs=15, mil__num_folds=3)()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _write(tested=6)


@pytest.fixture(scope="module")
def embedded_once(module_folder: NewFolder) -> Path:
    """The project with its features, for all tests: nobody changes it."""
    folder = module_folder("embedded")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _write(tested=6)
        for call in (STAGES[0], STAGES[1], FEATURES_STAGE):
            assert main(call) == 0
    return folder


@pytest.fixture
def embedded(embedded_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the project with its features."""
    work_in_copy(embedded_once, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.learns
@pytest.mark.usefixtures("project")
def test_every_stage_ends_and_the_report_is_of_slides(caplog: pytest.LogCaptureFixture) -> None:
    for call in ORDER:
        assert main(call) == 0, call
    data_warnings = json.loads(Path("data/check/metrics.json").read_text())["data_warnings"]
    assert any("the labels of 16 slides (odd, plain)" in line for line in data_warnings)
    table = pd.read_csv(MIL / "slides.csv")
    assert table["slide_id"].tolist() == [f"s{i}" for i in range(NUM)]
    assert (table["fold"] == -1).tolist() == [i >= 10 for i in range(NUM)]
    np.testing.assert_allclose(table["attention:odd"] + table["attention:plain"], 1, atol=1e-5)
    summary = json.loads((MIL / "summary.json").read_text())
    assert summary["test_macro_auc"]["attention"] > 0.9
    report = Path("data/comparison/report.md").read_text()
    assert "## Test slides: 3 odd, 3 plain slides" in report
    assert "random frozen, attention" in report
    for folder in (
        "models/random-0-0/finetuned",
        "models/random-0-paper-0/student",
        "evaluation/random-0-paper-0",
    ):
        about = json.loads((Path("data") / folder / "metrics.json").read_text())
        assert about["nothing_done"] == NO_PATCHES
    assert "10 labels of slides were used." in Path("data/report/index.html").read_text()
    heatmap = read_heatmap(MIL / "attention/s15.csv")
    place = heatmap.cells[np.argsort(heatmap.values["attention"])[-4:]]
    assert (place >= 300 // 32 - 1).all()  # the corner is where it looks
    assert (MIL / "plots/attention.png").is_file()
    assert len(list((MIL / "networks").glob("*.safetensors"))) == 3
    assert main(("verify",)) == 0, caplog.text


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_without_test_slides_all_are_cross_fitted_and_the_title_states_it() -> None:
    _write(tested=0)
    for call in ORDER:
        assert main(call) == 0, call
    report = Path("data/comparison/report.md").read_text()
    assert "cross-fitted: no test slides" in report.splitlines()[0]
    assert "## Cross-fitted slides: 8 odd, 8 plain slides" in report
    metrics = json.loads((MIL / "metrics.json").read_text())
    assert "test" not in metrics
    assert metrics["warnings"][0].startswith("no test slide has a label")


@pytest.mark.slow
@pytest.mark.usefixtures("embedded")
def test_features_are_made_once_whatever_is_labeled() -> None:
    """A slide to learn from gives statistics to all, one to test on to none."""
    folder = Path("data/features/random-0")
    files = sorted(folder.glob("*.h5"))
    assert len(files) == NUM
    assert _looked_at_again(files, changed=12) == {"s12.h5"}
    assert len(_looked_at_again(files, changed=2)) == NUM
    params_with(features__batchnorm_patches=0)()
    assert len(_looked_at_again(files, changed=3)) == NUM
    assert _looked_at_again(files, changed=2) == {"s2.h5"}


def _looked_at_again(files: list[Path], changed: int) -> set[str]:
    """By `features`, after a label and the pixels of a slide have changed."""
    before = {path: path.stat().st_ino for path in files}
    with_cell(OWN / "slides.csv", 4, "label", "plain")()
    pixels = slide_pixels(changed)
    pixels[50:90, 50:90] = next(_GRAYS)
    write_slide(OWN / f"s{changed}.tif", pixels=pixels)
    for call in (STAGES[0], FEATURES_STAGE):
        assert main(call) == 0
    return {path.name for path, inode in before.items() if path.stat().st_ino != inode}


@pytest.mark.slow
@pytest.mark.usefixtures("embedded")
def test_features_writes_the_encoder_with_the_statistics_of_slides_that_are_not_tested_on() -> None:
    folder = Path("data/features/random-0")
    of_pretraining, of_slides = (
        load_encoder(path / "encoder.safetensors")[0].state_dict()
        for path in (Path("data/models/random-0"), folder)
    )
    moved = {name for name, tensor in of_slides.items() if not tensor.equal(of_pretraining[name])}
    assert {name.rpartition(".")[2] for name in moved} == {
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }
    about = json.loads((folder / "metrics.json").read_text())
    assert about["batchnorm"]["num_slides"] == NUM - 6
    assert about["batchnorm"] == json.loads((folder / "encoder.json").read_text())["batchnorm"]
    params_with(features__batchnorm_patches=0)()
    assert main(FEATURES_STAGE) == 0
    assert "batchnorm" not in json.loads((folder / "metrics.json").read_text())
    pretrained = Path("data/models/random-0/encoder.safetensors").read_bytes()
    assert (folder / "encoder.safetensors").read_bytes() == pretrained


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
def test_features_that_cannot_be_used_are_one_line(damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("data/features/random-0/s3.h5")
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:900] if damage == "cut" else b"something else")
    capsys.readouterr()
    assert main(("mil", *RUN)) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "data/features/random-0/s3.h5: " in line
    assert "Fix: " in line
    assert not MIL.exists()


@pytest.mark.usefixtures("project")
def test_a_label_of_one_slide_alone_leaves_features_and_mil_empty_with_a_reason() -> None:
    for row in range(3, NUM + 2, 2):
        with_cell(OWN / "slides.csv", row, "label", "plain")()
    with_cell(OWN / "slides.csv", 3, "label", "odd")()
    for call in (STAGES[0], STAGES[1], FEATURES_STAGE, ("mil", *RUN)):
        assert main(call) == 0
    why = json.loads((MIL / "metrics.json").read_text())["nothing_done"]
    assert "'odd' has one slide or patient" in why
    assert not list(Path("data/features/random-0").glob("*.h5"))
