"""Folds that two processes train are those that one trains."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from histo_monai.data.tables.predictions import read_predictions
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.paths import Run
from tests.hostile.project import write_own_project
from tests.ranks import fork_ranks

RUN = ("--method", "random", "--seed", "0")


STAGES = (("finetune", *RUN), ("consistency", *RUN))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run with an encoder; the working folder is its project."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("DEVICE", "cpu"), ("CPUS", "1"), ("WORKERS", "0"), ("RANKS", "1")):
        monkeypatch.setenv(f"HISTO_MONAI_{name}", value)
    write_own_project()
    for call in (("index",), ("pretrain", "--method", "random")):
        assert main(call) == 0
    return Run("random", 0, 0, "paper")


@pytest.mark.slow
def test_folds_of_two_processes_are_those_of_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fork_ranks(monkeypatch)
    for ranks, folder in ((1, Path("alone")), (2, Path("both"))):
        monkeypatch.setenv("HISTO_MONAI_RANKS", str(ranks))
        for stage in STAGES:
            capfd.readouterr()
            assert main(stage) == 0
            assert capfd.readouterr().err.count(" written: ") <= 1  # by the first process alone
        for name, folds in run.folds.items():
            shutil.copytree(folds, folder / name)
    for name in run.folds:
        alone, both = Path("alone") / name, Path("both") / name
        files = sorted(path.name for path in alone.iterdir())
        assert sorted(path.name for path in both.iterdir()) == files
        assert (both / "folds.csv").read_bytes() == (alone / "folds.csv").read_bytes()
        models = [file for file in files if file.endswith(".safetensors")]
        assert len(models) == 2
        for model in models:
            shared, one = load_file(both / model), load_file(alone / model)
            assert shared.keys() == one.keys()
            for key, tensor in one.items():
                assert torch.allclose(shared[key], tensor, rtol=1e-3, atol=1e-4), (name, model, key)
        tables = [read_predictions(folder / "predictions.csv").predictions[name] for folder in (both, alone)]
        np.testing.assert_allclose(*tables, atol=1e-3)
    assert not list(Path("data/checkpoints").glob("*.pt"))
