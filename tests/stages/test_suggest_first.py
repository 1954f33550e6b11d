"""`suggest --first`: squares to label where there is neither a label nor a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.pipeline.cli import main
from histo_monai.slides import open_slide
from tests.hostile.project import OWN, STAGES, params_with, write_own_project

FIRST = Path("data/suggestions/first")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_own_project()
    params_with(pretraining_methods=["random"], labels__own__validation="labeled")()


def _pretrained() -> None:
    for call in STAGES[:2]:
        assert main(call) == 0, call


@pytest.mark.usefixtures("project")
def test_squares_of_slides_without_a_label_are_apart_and_on_the_slide() -> None:
    for path in [*OWN.glob("annotations/*"), *OWN.glob("patches.csv")]:
        path.unlink()
    _pretrained()
    assert main(("suggest", "--first", "--num", "9")) == 0
    table = pd.read_csv(FIRST / "suggestions.csv")
    assert table["rank"].tolist() == list(range(1, len(table) + 1))
    assert len(table) == 9
    for path, of_slide in table.groupby("path"):
        with open_slide(path) as slide:
            half = of_slide["side_px"].to_numpy()[:, None] / 2
            centers = of_slide[["y", "x"]].to_numpy()
            assert (centers - half >= -0.01).all()
            assert (centers + half <= np.array(slide.size_yx) + 0.01).all()
        apart = np.abs(centers[:, None] - centers[None]).max(axis=2) + 1e9 * np.eye(len(centers))
        assert (apart >= 2 * half.min() - 0.02).all()
    outlines = [json.loads(path.read_text()) for path in sorted(FIRST.glob("*.geojson"))]
    assert sum(len(one["features"]) for one in outlines) == 9


@pytest.mark.usefixtures("project")
def test_squares_that_are_labeled_come_into_the_index_and_are_not_suggested_again() -> None:
    (OWN / "patches.csv").unlink()
    _pretrained()
    assert main(("suggest", "--first", "--num", "8")) == 0
    assert main(("label", "--classes", "tumor", "normal")) == 0
    (page,) = Path("data/suggestions").glob("first-*.html")
    assert "data:image/jpeg" in page.read_text()
    first = pd.read_csv(FIRST / "suggestions.csv")
    labels = first[["slide_id", "y", "x", "mpp"]].assign(
        side_px=32, label=["tumor", "normal"] * 4, answer="label", labeled_by="Ada", labeled_at="2026-11-27"
    )
    labels.to_csv("labels.csv", index=False)
    assert main(("label", "--read", "labels.csv")) == 0
    assert main(STAGES[0]) == 0
    patches = pd.read_csv("data/index/patches.csv")
    assert sorted(zip(patches["slide_id"], patches["y"], patches["label"], strict=True)) == sorted(
        zip(labels["slide_id"], labels["y"], labels["label"], strict=True)
    )
    assert main(("suggest", "--first", "--num", "8")) == 0
    again = pd.read_csv(FIRST / "suggestions.csv")
    places = [set(zip(table["slide_id"], table["y"], table["x"], strict=True)) for table in (first, again)]
    assert not places[0] & places[1]


@pytest.mark.usefixtures("project")
def test_labeled_squares_and_test_slides_are_left_out() -> None:
    _pretrained()
    patches = pd.read_csv("data/index/patches.csv")
    assert main(("suggest", "--first", "--num", "12", "--output", "first")) == 0
    table = pd.read_csv("first/suggestions.csv")
    tested = set(patches.loc[patches["split"] != "train", "path"])
    assert tested
    assert not tested & set(table["path"])
    labeled = patches[patches["split"] == "train"]
    assert set(table["path"]) & set(labeled["path"])
    for row in table.itertuples():
        near = labeled[labeled["path"] == row.path]
        distance = np.abs(near[["y", "x"]].to_numpy() - (row.y, row.x)).max(axis=1)
        assert (distance >= row.side_px * (1 - 1e-3)).all()


@pytest.mark.usefixtures("project")
def test_without_an_encoder_the_error_names_the_command_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(STAGES[0]) == 0
    assert main(("suggest", "--first")) == 1
    assert "Fix: run `dvc repro pretrain`" in capsys.readouterr().err
    assert not FIRST.exists()
