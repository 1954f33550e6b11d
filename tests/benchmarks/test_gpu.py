"""`benchmarks/gpu.sh`: which parts it runs, a part that fails or does not fit, and the tables."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from histo_monai.models.encoder import build_encoder


@pytest.fixture
def program(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`benchmarks/gpu/run.py`, as a module."""
    for folder in ("benchmarks", "benchmarks/gpu"):
        monkeypatch.syspath_prepend(str(root / folder))
    return importlib.import_module("run")


def _part(program: ModuleType, folder: Path, name: str, code: str, least_s: float = 1.0) -> Any:
    (folder / f"{name}.py").write_text(code)
    return program.Part(name, str(folder / f"{name}.py"), least_s, 60.0, "for a test")


def test_every_part_that_is_listed_is_there(root: Path, program: ModuleType) -> None:
    done = subprocess.run(
        [root / "benchmarks/gpu.sh", "--list"],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == [part.name for part in program.PARTS]
    assert program.PARTS[0].name == "tests"
    assert all((root / "benchmarks" / part.script).is_file() for part in program.PARTS if part.script)
    assert sum(part.least_s for part in program.PARTS) < program.BUDGET_S < 9 * 60


def test_the_tests_are_those_that_have_the_device_as_a_parameter(root: Path, program: ModuleType) -> None:
    found = {path.name for path in program.with_device(root / "tests")}
    wanted = {"test_steps_on_devices", "test_policies_on_devices", "test_prediction", "test_trainer"}
    assert {f"{name}.py" for name in wanted | {"test_heatmaps", "test_wsi_reader"}} <= found
    assert "test_layers.py" not in found


def test_a_part_that_fails_or_does_not_fit_leaves_the_others(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {
        "what": "good",
        "clock": "wall",
        "ours": [1.0],
        "peer": [],
        "limit": [],
        "limit_is": "",
        "per": 1,
        "counts": {},
    }
    parts = (
        _part(program, tmp_path, "bad", "raise SystemExit('no disk')"),
        _part(program, tmp_path, "silent", ""),
        _part(program, tmp_path, "large", "raise AssertionError", least_s=1000.0),
        _part(program, tmp_path, "good", f"import json\nprint(json.dumps({row!r}))"),
    )
    monkeypatch.setattr(program, "PARTS", parts)
    assert program.main(["--device", "cpu", "--logs", str(tmp_path / "logs")]) == 1
    outcomes = json.loads((tmp_path / "logs/gpu.json").read_text())["outcomes"]
    assert [one["outcome"] for one in outcomes] == ["failed", "failed", "left out", "passed"]
    assert outcomes[0]["figure"] == "no disk; 0 measured"
    assert "| large | left out |" in capsys.readouterr().out
    monkeypatch.setattr(program, "PARTS", parts[2:])
    assert program.main(["--device", "cpu", "--logs", str(tmp_path / "logs")]) == 0
    monkeypatch.setattr(program, "PARTS", parts)
    assert program.parsed(["--only", "good", "large"]).only == ["good", "large"]
    assert program.main(["--device", "cpu", "--only", "good", "--logs", str(tmp_path / "logs")]) == 0


def test_a_part_that_hangs_is_ended(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = _part(program, tmp_path, "hanging", "import time\ntime.sleep(600)")._replace(most_s=1.0)
    monkeypatch.setattr(program, "PARTS", (hanging,))
    assert program.main(["--device", "cpu", "--logs", str(tmp_path / "logs")]) == 1
    (outcome,) = json.loads((tmp_path / "logs/gpu.json").read_text())["outcomes"]
    assert outcome["figure"] == "ended after 1 s; 0 measured"
    assert outcome["seconds"] < 60


@pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")
def test_without_a_gpu_none_is_claimed(program: ModuleType, tmp_path: Path, capsys) -> None:
    assert program.main(["--logs", str(tmp_path / "logs")]) == 1
    assert capsys.readouterr().err == "gpu.sh: error: --device cuda, but torch finds no GPU here\n"
    assert not (tmp_path / "logs").exists()


def test_steps_are_timed_of_every_method_that_trains_a_network(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("benchmarks", "benchmarks/parts"):
        monkeypatch.syspath_prepend(str(root / folder))
    timed = importlib.import_module("steps").taught()
    assert {"paper", "supervised", "fixmatch", "mean_teacher", "rankup"} <= set(timed)
    assert not {"adabn", "self_training", "diagnoses"} & set(timed)  # they take no step


def test_encoders_run_compiled_inside_the_context_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("benchmarks", "benchmarks/parts"):
        monkeypatch.syspath_prepend(str(root / folder))
    calls: list[str] = []

    def compiled(forward: Any, **_: object) -> Any:
        return lambda patches: calls.append("compiled") or forward(patches)

    monkeypatch.setattr(torch, "compile", compiled)
    encoder, patches = build_encoder(), torch.rand(2, 3, 64, 64)
    inside = importlib.import_module("compiling").CompiledEncoders(
        nn.Sequential(encoder), torch.device("cpu")
    )
    before = encoder.eval()(patches)
    with inside():
        torch.testing.assert_close(encoder(patches), before)
    encoder(patches)
    assert calls == ["compiled"]


def test_a_step_is_held_against_what_is_counted(program: ModuleType) -> None:
    """2 TFLOP at 100 TFLOP/s take 20 ms, 1 GB at 100 GB/s 10 ms: the floor is 20; 1,000 steps of 50 ms are 50 s."""
    counts = {
        "flops": 2e12, "transferred_bytes": 1e9, "decoded_bytes": 5e6, "steps_of_epoch": 1000, "steps_of_run": 250_000,
    }  # fmt: skip
    measured = {
        "ours": [0.05], "limit": [0.045], "limit_is": "", "counts": counts,
        "parts": {"augmentation": [0.004], "reading": [0.002]},
    }  # fmt: skip
    row = {"what": "step", "ours/limit": 0.9, "seconds": measured}
    ceilings = {"flops": 1e14, "transferred_bytes": 1e11}
    cells = importlib.import_module("markdown_of").step_line(row, ceilings, False).strip("| ").split(" | ")
    assert cells == ["step", "50", "0.90", "4", "2", "2000", "20", "1e+03", "5", "50 s", "3.47 h"]
