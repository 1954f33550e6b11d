"""`dvc repro` in a fresh clone, on a cohort small enough for a test."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

Shell = Callable[..., str]


@pytest.fixture(scope="module")
def clone(finished: Any) -> Path:
    return finished.folder


def _ran(told: str) -> set[str]:
    """Stages that ran, as DVC tells."""
    return set(re.findall(r"Running stage '([^']+)'", told))


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
    told = shell("dvc repro --dry", clone)
    path.write_text(before)
    return _ran(told)


EVERY = {
    f"{stage}@{method}-0" for stage in ("finetune", "consistency", "evaluate") for method in ("random", "rsp")
} | {"compare"}


@pytest.mark.slow
def test_repro_makes_models_and_metrics_and_then_has_nothing_to_do(
    finished: Any, clone: Path, shell: Shell
) -> None:
    assert _ran(finished.told) == EVERY | {"phantom", "index", "pretrain@random", "pretrain@rsp"}
    assert "Data and pipelines are up to date" in shell("dvc status", clone)
    for method in ("random", "rsp"):
        assert (clone / f"data/models/{method}/encoder.safetensors").stat().st_size > 40e6
        assert len(pd.read_csv(clone / f"data/models/{method}/curves.csv")) == {"random": 0, "rsp": 2}[method]
        for model in ("finetuned", "student"):
            assert (clone / f"data/models/{method}-0/{model}/model.safetensors").stat().st_size > 40e6
        metrics = json.loads((clone / f"data/evaluation/{method}-0/metrics.json").read_text())
        for split, model in itertools.product(
            ("validation", "test"), ("finetuned", "student", "chosen", "color_mean")
        ):
            told = metrics[split][model]["accuracy"]
            assert set(told) == {"value", "low", "high", "n"}
            assert 0.0 <= told["value"] <= 1.0
        predictions = pd.read_csv(clone / f"data/evaluation/{method}-0/predictions.csv")
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
def test_a_change_runs_only_what_it_reaches(clone: Path, shell: Shell) -> None:
    assert _would_run(shell, clone, "alpha", 0.25) == EVERY
    consistency = {"consistency@random-0", "consistency@rsp-0"}  # a dry run does not look further
    assert _would_run(shell, clone, "consistency.camelyon16.epochs", 2) == consistency
    for key, value in (("mu", 3), ("n_aug", 2)):  # which the table tells
        assert _would_run(shell, clone, key, value) == consistency | {"compare"}
    assert "index" not in _would_run(shell, clone, "pretrain.rsp.lr", 0.02)
    assert _would_run(shell, clone, "labels.kather.folder", "NCT-CRC-HE-100K-NONORM") == set()


@pytest.mark.slow
def test_metrics_and_plots_are_shown(clone: Path, shell: Shell) -> None:
    shown = json.loads(shell("dvc metrics show --json", clone))[""]["data"]
    summary = shown["data/evaluation/rsp-0/summary.json"]["data"]
    assert set(summary) == {"validation_accuracy", "test_accuracy"}
    assert set(summary["test_accuracy"]) == {
        "finetuned",
        "student",
        "chosen",
        "color_mean",
        "color_histogram",
    }
    shell("dvc plots show", clone)
    page = (clone / "dvc_plots/index.html").read_text()
    for picture in ("confusion.png", "reliability.png", "pairs.png", "answers.png"):
        assert picture in page


@pytest.mark.slow
def test_another_dataset_is_one_setting_and_shares_the_pretraining(clone: Path, shell: Shell) -> None:
    told = shell("dvc exp run -S dataset=kather -S 'methods=[rsp]'", clone)
    assert _ran(told) == {name for name in EVERY if "random" not in name} | {"phantom", "index"}
    summary = json.loads((clone / "data/evaluation/rsp-0/summary.json").read_text())
    assert 0.0 <= summary["test_accuracy"]["student"] <= 1.0
    warnings = json.loads((clone / "data/evaluation/rsp-0/metrics.json").read_text())["warnings"]
    assert "no patient ids" in warnings[0]
