"""`dvc repro` in a fresh clone, on a cohort small enough for a test."""

from __future__ import annotations

import json
import os
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
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["patch_px"] = 32
    params["phantom"] |= {"num_slides": 6, "num_test_slides": 1, "num_patches": 30, "slide_side_px": 768}
    params["corpora"]["camelyon16"] |= {"num_train": 24, "num_validation": 6, "num_normal": 2, "num_tumor": 2}
    params["pretrain"]["rsp"] |= {"epochs": 2, "batch_size": 8}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    _run("git init -q && git add -A && git commit -qm start", folder)
    return folder


@pytest.mark.slow
def test_repro_makes_encoders_and_then_has_nothing_to_do(clone: Path) -> None:
    _run("dvc repro", clone)
    assert "Data and pipelines are up to date" in _run("dvc status", clone)
    for method in ("random", "rsp"):
        folder = clone / "data/models" / method
        assert (folder / "encoder.safetensors").stat().st_size > 40e6
        metrics = json.loads((folder / "metrics.json").read_text())
        assert 0.0 <= metrics["validation_accuracy"] <= 1.0
        assert len(pd.read_csv(folder / "curves.csv")) == {"random": 0, "rsp": 2}[method]
    again = _run("dvc repro", clone)
    assert "Running stage" not in again
    assert "up to date" in again
    assert _run("git status --porcelain", clone).split() == ["??", "dvc.lock"]
    _run("git add data/.gitignore dvc.lock && git commit -qm run", clone)  # as DVC advises

    shown = _run("dvc metrics show", clone)
    assert "data/models/rsp/metrics.json" in shown
    assert "Running stage" not in _run("dvc plots show", clone)

    plan = _run("dvc exp run -S pretrain.rsp.lr=0.02", clone)
    assert "Stage 'index' didn't change, skipping" in plan
    assert "Stage 'pretrain@random' didn't change, skipping" in plan
    assert "Running stage 'pretrain@rsp'" in plan
