"""Folds that two processes train are those that one trains."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from histo_monai.__main__ import main
from histo_monai.artifacts import Run
from tests.hostile.project import write_own_project

RUN = ("--method", "random", "--seed", "0")


@pytest.fixture
def folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the models of a project's folds are written; the working folder is the project."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("DEVICE", "cpu"), ("CPUS", "1"), ("WORKERS", "0"), ("RANKS", "1")):
        monkeypatch.setenv(f"HISTO_MONAI_{name}", value)
    write_own_project()
    for call in (("index",), ("pretrain", "--method", "random")):
        assert main(call) == 0
    return Run("random", 0, 0, "paper").folds


@pytest.mark.slow
def test_folds_of_two_processes_are_those_of_one(
    folds: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "histo_monai")  # which the processes go by
    assert main(["crossfit", *RUN]) == 0
    alone = folds.with_name("alone")
    shutil.move(folds, alone)
    monkeypatch.setenv("HISTO_MONAI_RANKS", "2")
    capfd.readouterr()
    assert main(["crossfit", *RUN]) == 0
    assert capfd.readouterr().err.count("folds written: ") == 1  # by the first process alone
    names = sorted(path.name for path in alone.iterdir())
    assert sorted(path.name for path in folds.iterdir()) == names
    assert (folds / "folds.csv").read_bytes() == (alone / "folds.csv").read_bytes()
    models = [name for name in names if name.endswith(".safetensors")]
    assert len(models) == 4
    for name in models:
        shared, one = load_file(folds / name), load_file(alone / name)
        assert shared.keys() == one.keys()
        for key, tensor in one.items():
            assert torch.allclose(shared[key], tensor, rtol=1e-3, atol=1e-4), (name, key)
    measures = [json.loads((folder / "metrics.json").read_text()) for folder in (folds, alone)]
    for fold in ("fold_0", "fold_1"):
        assert measures[0][fold] == pytest.approx(measures[1][fold], abs=1e-3)
    assert not list(Path("data/checkpoints").glob("crossfit-*"))


@pytest.mark.slow
def test_a_fold_without_a_class_is_refused_in_one_line_by_two_processes(
    folds: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HISTO_MONAI_RANKS", "2")
    params = Path("params.yaml")
    params.write_text(params.read_text().replace("alpha: 1.0", "alpha: 0.3"))
    capfd.readouterr()
    assert main(["crossfit", *RUN]) == 1
    errors = [line for line in capfd.readouterr().err.splitlines() if "error: " in line]
    assert len(errors) == 1, errors
    assert "fold " in errors[0]
    assert not folds.exists()
