"""Mode `head` with scores in place of classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch

from histo_monai.models.task_model import from_task_model
from histo_monai.pipeline.cli import main
from tests.hostile.project import STAGES, params_with, write_own_project

RUN = ("--method", "random", "--student", "supervised", "--seed", "0")
MODEL = Path("data/models/random-0-0/finetuned/model.safetensors")


def test_scores_have_heads_and_no_pseudo_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_own_project()
    table = Path("data/raw/own/patches.csv")
    patches = pd.read_csv(table).drop(columns="label")
    patches.assign(score=np.linspace(0, 1, len(patches)).round(3)).to_csv(table, index=False)
    params_with(
        finetune__mode="head",
        semisupervised_methods=["supervised", "self_training"],
        slide_level__pretraining_methods=[],
    )()
    for call in (*STAGES[:2], ("features", "--method", "random"), *(("finetune", *RUN[:2], *RUN[4:]),)):
        assert main(call) == 0
    assert main(("consistency", *RUN)) == main(("evaluate", *RUN)) == 0
    model, description = from_task_model(MODEL)
    assert {part["head"] for part in description["selection"]["parts"]} == {
        "ridge",
        "kernel_ridge",
        "neighbors",
    }
    student, _ = from_task_model("data/models/random-0-supervised-0/student/model.safetensors")
    patches_ = torch.rand(3, 3, 32, 32)
    with torch.inference_mode():
        expected = model.eval()(patches_)
        assert torch.equal(student.eval()(patches_), expected)
    assert main(("export", str(MODEL), "--onnx", "head.onnx")) == 0
    session = onnxruntime.InferenceSession("head.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: patches_.numpy()})
    np.testing.assert_allclose(found, expected, atol=1e-4)
    capsys.readouterr()
    assert main(("consistency", *RUN[:2], "--student", "self_training", *RUN[4:])) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert "scores" in line
    assert "supervised" in line
