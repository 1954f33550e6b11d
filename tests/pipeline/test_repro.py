"""`dvc repro` in a fresh clone, on a small simulated dataset."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openslide
import pandas as pd
import pytest
import yaml
from sklearn.metrics import roc_auc_score

from histo_monai.data.tables.tasks import patient_or_slide
from histo_monai.pipeline.doctor.pipeline import lock_file
from histo_monai.pipeline.doctor.results import verify_folder
from histo_monai.pipeline.paths import Run
from histo_monai.slides.annotations import rasterize_regions, read_geojson
from histo_monai.wsi.heatmaps.heatmap import read_heatmap
from histo_monai.wsi.heatmaps.tiff_map import read_map
from tests.pipeline.names import run_of

Shell = Callable[..., str]
STAGE_WEIGHTS = {1: 157_504, 2: 683_072}
"""Of the first stages of a ResNet-18."""


@pytest.fixture(scope="module")
def clone(finished: Any) -> Path:
    return finished.folder


def _ran(output: str) -> set[str]:
    """Stages that ran, as DVC tells."""
    return set(re.findall(r"Running stage '([^']+)'", output))


def _would_run(shell: Shell, clone: Path, key: str, value: object) -> set[str]:
    """What `dvc repro` would run after one change of params.yaml."""
    path = clone / "params.yaml"
    before = path.read_text()
    tree = yaml.safe_load(before)
    *way, last = key.split(".")
    section = tree
    for name in way:
        section = section[name]
    section[last] = value
    path.write_text(yaml.safe_dump(tree))
    output = shell("dvc repro --dry", clone)
    path.write_text(before)
    return _ran(output)


def _of_both(*stages: str) -> set[str]:
    return {run_of(stage, method) for stage in stages for method in ("random", "rsp")}


TRAININGS = _of_both("finetune", "consistency", "evaluate")
EVERY = TRAININGS | _of_both("heatmap", "aggregate", "features", "mil") | {"compare", "report"}


@pytest.mark.slow
def test_repro_makes_models_and_metrics_and_then_has_nothing_to_do(
    finished: Any, clone: Path, shell: Shell
) -> None:
    assert _ran(finished.output) == EVERY | {
        "code",
        "phantom",
        "index",
        "check",
        "pretrain@random-0",
        "pretrain@rsp-0",
    }
    assert "Data and pipelines are up to date" in shell("dvc status", clone)
    for method in ("random", "rsp"):
        assert (clone / f"data/models/{method}-0/encoder.safetensors").stat().st_size > 40e6
        assert (
            len(pd.read_csv(clone / f"data/models/{method}-0/curves.csv")) == {"random": 0, "rsp": 2}[method]
        )
        for model in Run(method, 0, 0, "spatial_neighbors").models.values():
            description = json.loads((clone / model).with_suffix(".json").read_text())
            num_bytes = 4 * STAGE_WEIGHTS[description["encoder"]["stages"]]  # as few labels ask for no more
            assert num_bytes < (clone / model).stat().st_size < num_bytes + 400_000  # and a head
        metrics = json.loads(
            (clone / f"data/evaluation/{method}-0-spatial_neighbors-0/metrics.json").read_text()
        )
        for split, model in itertools.product(
            ("validation", "test"), ("finetuned", "student", "chosen", "color_mean")
        ):
            estimate = metrics[split][model]["accuracy"]
            assert set(estimate) == {"value", "low", "high", "n"}
            assert 0.0 <= estimate["value"] <= 1.0
        predictions = pd.read_csv(clone / f"data/evaluation/{method}-0-spatial_neighbors-0/predictions.csv")
        right = predictions["student_tumor"] > 0.5
        of_test = predictions["split"] == "test"
        accuracy = (right == (predictions["label"] == "tumor"))[of_test].mean()
        assert metrics["test"]["student"]["accuracy"]["value"] == pytest.approx(accuracy)
    again = shell("dvc repro", clone)
    assert _ran(again) == set()
    assert "up to date" in again
    assert finished.untracked.split() == ["??", "dvc.lock"]
    assert shell("git status --porcelain", clone) == ""


@pytest.mark.slow
def test_repro_maps_and_diagnoses_every_slide_once(clone: Path) -> None:
    slides = pd.read_csv(clone / "data/index/whole_slides.csv", keep_default_na=False)
    assert (slides["split"] == "test").sum() == 4
    folds = pd.read_csv(clone / "data/models/rsp-0-spatial_neighbors-0/student/folds/folds.csv")
    assert set(folds["fold"]) == {0, 1}
    trained_on = slides.loc[patient_or_slide(slides).isin(folds["patient"]), "slide_id"]
    assert set(slides.loc[slides["slide_id"].isin(trained_on), "split"]) == {"train"}
    assert len(trained_on) >= 4
    folder = clone / "data/heatmaps/rsp-0-spatial_neighbors-0"
    for slide_id in slides["slide_id"]:
        scores = read_heatmap(folder / f"scores/{slide_id}.csv")
        seen = {"finetuned_seen", "student_seen"} if slide_id in set(trained_on) else set()
        assert set(scores.values) == {"finetuned", "student"} | seen
        for model in ("finetuned", "student"):
            raster, stride_um = read_map(folder / f"{model}/{slide_id}.tif")
            assert stride_um == scores.grid.stride_um
            np.testing.assert_allclose(raster, scores.raster(model), atol=1 / 500)
            with openslide.OpenSlide(folder / f"{model}/{slide_id}.tif") as opened:
                assert float(opened.properties["openslide.mpp-x"]) == pytest.approx(stride_um)
            regions, _ = read_geojson(folder / f"{model}/{slide_id}.geojson")
            grid = scores.grid
            above = rasterize_regions(regions, downsample=grid.downsample, shape=grid.shape)
            np.testing.assert_array_equal(above, np.nan_to_num(scores.raster(model)) >= 0.5)
            assert (folder / f"{model}/{slide_id}.png").is_file()
    metrics = json.loads((clone / "data/diagnosis/rsp-0-spatial_neighbors-0/metrics.json").read_text())[
        "test"
    ]["student"]
    assert set(metrics["slide_auc"]) == {"value", "low", "high", "n"}
    scores = pd.read_csv(clone / "data/diagnosis/rsp-0-spatial_neighbors-0/slides.csv")
    test = scores[scores["split"] == "test"]
    area = roc_auc_score(test["label"] == "tumor", test["student_score"])
    assert metrics["slide_auc"]["value"] == pytest.approx(area)
    summary = json.loads((clone / "data/comparison/summary.json").read_text())
    assert summary["test_slide_auc"]["rsp-spatial_neighbors"] == pytest.approx(area)
    baselines = {"rsp-attention", "rsp-moments"}
    assert set(summary["test_slide_auc"]) == {"rsp-finetune", "rsp-spatial_neighbors", *baselines}
    learned = pd.read_csv(clone / "data/mil/rsp-0-0/slides.csv").query("split == 'test'")
    area = roc_auc_score(learned["label"] == "tumor", learned["attention:tumor"])
    assert summary["test_slide_auc"]["rsp-attention"] == pytest.approx(area)


@pytest.mark.slow
def test_repro_maps_nothing_with_methods_that_are_not_asked_for(clone: Path) -> None:
    assert pd.read_csv(clone / "data/heatmaps/random-0-spatial_neighbors-0/slides.csv").empty
    assert pd.read_csv(clone / "data/diagnosis/random-0-spatial_neighbors-0/slides.csv").empty
    log = json.loads((clone / "data/diagnosis/random-0-spatial_neighbors-0/metrics.json").read_text())[
        "warnings"
    ]
    assert ["maps no slide" in line for line in log] == [True]


@pytest.mark.slow
def test_every_result_is_verified_and_one_changed_byte_of_each_kind_of_file_is_found(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clone)
    assert [finding for finding in verify_folder(Path("data")) if finding.status != "PASS"] == []
    folders = ("evaluation", "heatmaps", "diagnosis", "comparison", "phantom", "features", "mil")
    files = [path for folder in folders for path in sorted(Path("data", folder).rglob("*.*"))]
    of_each_kind = {path.suffix: path for path in files if path.is_file() and not path.name.startswith(".")}
    assert set(of_each_kind) == {
        *(".csv", ".json", ".png", ".tif", ".geojson", ".md", ".safetensors", ".xml", ".h5"),
    }
    for path in of_each_kind.values():
        content, mode = path.read_bytes(), path.stat().st_mode
        place = len(content) // 2
        path.chmod(0o644)
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        findings = verify_folder(Path(*path.parts[:2]))
        path.write_bytes(content)
        path.chmod(mode)
        assert str(path) in {finding.what for finding in findings if finding.status == "FAIL"}


@pytest.mark.slow
def test_a_lock_file_of_no_bytes_is_refused_and_is_written_anew_from_the_run_cache(
    clone: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clone)
    lock = clone / "dvc.lock"
    whole = lock.read_text()
    lock.write_bytes(b"")  # as DVC leaves it when it is killed while it writes
    shell("dvc repro", clone, fails=True)
    (finding,) = lock_file(None)
    assert finding.status == "FAIL"
    assert "rm dvc.lock" in finding.remedy
    shell("rm dvc.lock", clone)
    output = shell("dvc repro finetune@rsp-0-0", clone)
    assert _ran(output) == {"features@rsp-0"}  # DVC caches no run whose outputs persist; its files stay
    assert output.count("cached - skipping run") == 6
    stages = yaml.safe_load(lock.read_text())["stages"]
    before = yaml.safe_load(whole)["stages"]
    assert stages == {
        name: before[name]
        for name in (
            "code",
            "phantom",
            "index",
            "check",
            "pretrain@rsp-0",
            "features@rsp-0",
            "finetune@rsp-0-0",
        )
    }
    shell("git checkout dvc.lock", clone)
    assert "up to date" in shell("dvc status", clone)


@pytest.mark.slow
def test_a_change_runs_only_what_it_reaches(clone: Path, shell: Shell) -> None:
    # A dry run does not look further than the params that changed.
    assert _would_run(shell, clone, "alpha", 0.5) == TRAININGS | {"check", "compare"}
    consistency = _of_both("consistency")
    assert _would_run(shell, clone, "consistency.paper.epochs", 2) == consistency
    for key, value in (("mu", 3), ("n_aug", 2)):  # which the table tells
        assert _would_run(shell, clone, key, value) == consistency | {"compare"}
    maps = _of_both("heatmap", "aggregate", "mil")
    assert _would_run(shell, clone, "heatmap.region_threshold", 0.9) == maps | {"check", "report"}
    assert _would_run(shell, clone, "aggregate.kernel", "linear") == _of_both("aggregate")
    assert _would_run(shell, clone, "mil.epochs", 3) == _of_both("mil")
    assert "index" not in _would_run(shell, clone, "pretrain.rsp.lr", 0.02)
    assert _would_run(shell, clone, "labels.kather.folder", "NCT-CRC-HE-100K-NONORM") == set()


@pytest.mark.slow
def test_metrics_and_plots_are_shown(clone: Path, shell: Shell) -> None:
    shown = json.loads(shell("dvc metrics show --json", clone))[""]["data"]
    summary = shown["data/evaluation/rsp-0-spatial_neighbors-0/summary.json"]["data"]
    assert set(summary) == {"validation_accuracy", "test_accuracy"}
    assert set(summary["test_accuracy"]) == {
        "finetuned",
        "student",
        "chosen",
        "color_mean",
        "color",
        "encoder_linear",
        "encoder_knn",
        "stacked",
        "majority",
    }
    of_test = pd.read_csv(clone / "data/evaluation/rsp-0-spatial_neighbors-0/predictions.csv").query(
        "split == 'test'"
    )
    assert summary["test_accuracy"]["majority"] == pytest.approx((of_test["label"] == "normal").mean())
    shell("dvc plots show", clone)
    page = (clone / "dvc_plots/index.html").read_text()
    pictures = ("confusion.png", "reliability.png", "pairs.png", "answers.png", "mosaic.png", "roc.png")
    for picture in pictures:
        assert picture in page


@pytest.mark.slow
def test_another_dataset_is_one_setting_and_shares_the_pretraining(clone: Path, shell: Shell) -> None:
    to_the_maps = ("features", "finetune", "consistency", "evaluate", "heatmap")
    runs = {run_of(stage, "rsp") for stage in to_the_maps}
    targets = " ".join(sorted(runs))
    output = shell(f"dvc exp run -S dataset=kather -S 'pretraining_methods=[rsp]' {targets}", clone)
    assert _ran(output) == runs | {"phantom", "index", "check"}
    summary = json.loads((clone / "data/evaluation/rsp-0-spatial_neighbors-0/summary.json").read_text())
    assert 0.0 <= summary["test_accuracy"]["student"] <= 1.0
    warnings = json.loads((clone / "data/evaluation/rsp-0-spatial_neighbors-0/metrics.json").read_text())[
        "warnings"
    ]
    assert "no patient ids" in warnings[0]
    # Kather has patches only: nothing is mapped. What follows: tests/stages/test_pictures_alone.py.
    assert json.loads((clone / "data/heatmaps/rsp-0-spatial_neighbors-0/summary.json").read_text()) == {
        "slides": 0,
        "cells": 0,
    }


@pytest.mark.slow
def test_another_encoder_is_another_run_of_all_that_follows_it(clone: Path, shell: Shell) -> None:
    """After the last test: of Kather's patches."""
    output = shell(
        "dvc exp run -S 'pretraining_seeds=[0,1]' -S 'pretraining_methods=[random]' pretrain@random-0 "
        "finetune@random-1-0",
        clone,
    )
    assert _ran(output) == {"check", "pretrain@random-1", "features@random-1", "finetune@random-1-0"}
    files = [clone / f"data/models/random-{encoder}/encoder.safetensors" for encoder in (0, 1)]
    assert files[0].read_bytes() != files[1].read_bytes()
    about = json.loads((clone / "data/models/random-1-0/finetuned/model.json").read_text())
    assert (about["encoder_seed"], about["seed"]) == (1, 0)
    stages = set(shell("dvc stage list --name-only", clone).split())
    later = ("consistency", "evaluate", "heatmap", "aggregate", "features", "mil")
    for stage in later:
        of_first = run_of(stage, "random")
        assert {of_first, of_first.replace("random-0", "random-1")} <= stages
