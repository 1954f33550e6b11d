"""`dvc repro` in a fresh clone, on a cohort small enough for a test."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml


def _run(command: str, cwd: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    identity = {
        f"GIT_{who}_{what}": "test@example.org"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    environment = {
        **os.environ,
        **identity,
        "PATH": path,
        "DVC_NO_ANALYTICS": "1",
        "HISTO_MONAI_DEVICE": "cpu",
    }
    done = subprocess.run(
        command, shell=True, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def clone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that git tracks, as they are now, in a repository of their own with tiny params."""
    folder = tmp_path_factory.mktemp("clone")
    for name in _run("git ls-files --cached --others --exclude-standard", root).split():
        if (root / name).is_file() and name != "dvc.lock":  # the lock of a run in this very checkout
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["patch_px"] = 32
    params["phantom"] |= {"num_slides": 8, "num_test_slides": 2, "num_patches": 180, "slide_side_px": 768}
    params["corpora"]["camelyon16"] |= {"num_train": 24, "num_validation": 6, "num_normal": 2, "num_tumor": 2}
    counts = {"num_tumor": 10, "num_normal": 10}
    params["labels"]["camelyon16"] |= dict.fromkeys(("train", "validation", "test"), counts)
    params["pretrain"]["rsp"] |= {"epochs": 2, "batch_size": 8}
    for stage, dataset in itertools.product(
        ("finetune", "consistency"), ("camelyon16", "kather", "breastpathq")
    ):
        params[stage][dataset] |= {"epochs": 1, "batch_size": 4}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    _run("git init -q && git add -A && git commit -qm start", folder)
    return folder


def _ran(told: str) -> set[str]:
    """Stages that ran, as DVC tells."""
    return set(re.findall(r"Running stage '([^']+)'", told))


def _would_run(clone: Path, key: str, value: object) -> set[str]:
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
    told = _run("dvc repro --dry", clone)
    path.write_text(before)
    return _ran(told)


EVERY = {
    f"{stage}@{method}-0" for stage in ("finetune", "consistency", "evaluate") for method in ("random", "rsp")
}


@pytest.mark.slow
def test_repro_makes_models_and_metrics_and_then_has_nothing_to_do(clone: Path) -> None:
    first = _run("dvc repro", clone)
    assert _ran(first) == EVERY | {"phantom", "index", "pretrain@random", "pretrain@rsp"}
    assert "Data and pipelines are up to date" in _run("dvc status", clone)
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
    again = _run("dvc repro", clone)
    assert _ran(again) == set()
    assert "up to date" in again
    assert _run("git status --porcelain", clone).split() == ["??", "dvc.lock"]
    _run("git add data/.gitignore dvc.lock && git commit -qm run", clone)  # as DVC advises


@pytest.mark.slow
def test_a_change_runs_only_what_it_reaches(clone: Path) -> None:
    assert _would_run(clone, "alpha", 0.25) == EVERY
    consistency = {"consistency@random-0", "consistency@rsp-0"}  # a dry run does not look further
    for key, value in (("mu", 3), ("n_aug", 2), ("consistency.camelyon16.epochs", 2)):
        assert _would_run(clone, key, value) == consistency
    assert "index" not in _would_run(clone, "pretrain.rsp.lr", 0.02)
    assert _would_run(clone, "labels.kather.folder", "NCT-CRC-HE-100K-NONORM") == set()


@pytest.mark.slow
def test_metrics_and_plots_are_shown(clone: Path) -> None:
    shown = json.loads(_run("dvc metrics show --json", clone))[""]["data"]
    summary = shown["data/evaluation/rsp-0/summary.json"]["data"]
    assert set(summary) == {"validation_accuracy", "test_accuracy"}
    assert set(summary["test_accuracy"]) == {
        "finetuned",
        "student",
        "chosen",
        "color_mean",
        "color_histogram",
    }
    _run("dvc plots show", clone)
    page = (clone / "dvc_plots/index.html").read_text()
    for picture in ("confusion.png", "reliability.png", "pairs.png", "answers.png"):
        assert picture in page


@pytest.mark.slow
def test_another_dataset_is_one_setting_and_shares_the_pretraining(clone: Path) -> None:
    told = _run("dvc exp run -S dataset=kather -S 'methods=[rsp]'", clone)
    assert _ran(told) == {name for name in EVERY if "rsp" in name} | {"phantom", "index"}
    summary = json.loads((clone / "data/evaluation/rsp-0/summary.json").read_text())
    assert 0.0 <= summary["test_accuracy"]["student"] <= 1.0
    warnings = json.loads((clone / "data/evaluation/rsp-0/metrics.json").read_text())["warnings"]
    assert "no patient ids" in warnings[0]
