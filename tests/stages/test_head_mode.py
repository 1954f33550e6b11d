"""Mode `head` of the fine-tuning: heads on stored features are models like any other, and encode no patch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from histo_monai.data.loaders.reader import PatchReader
from histo_monai.data.tables.patches import read_patches
from histo_monai.models.checkpoint import load_model
from histo_monai.models.encoder import Encoder
from histo_monai.models.task_model import from_task_model
from histo_monai.pipeline.cli import main
from tests.folders import NewFolder
from tests.hostile.project import STAGES, params_with, write_own_project

STUDENTS = ("supervised", "self_training", "label_propagation")
MODEL = Path("data/models/random-0-0/finetuned/model.safetensors")


def _calls(student: str) -> list[tuple[str, ...]]:
    of_student = ("--method", "random", "--student", student, "--seed", "0")
    return [("consistency", *of_student), ("evaluate", *of_student)]


@pytest.fixture(scope="module")
def fitted(module_folder: NewFolder) -> tuple[Path, list[int]]:
    """Own slides, a random encoder, its features and all heads; and how many patches the heads encoded."""
    folder = module_folder("heads")
    counts: list[int] = []
    forward = Encoder.forward

    def counted(self: Encoder, patches: torch.Tensor) -> torch.Tensor:
        counts.append(len(patches))
        return forward(self, patches)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_own_project()
        params_with(
            finetune__mode="head",
            semisupervised_methods=list(STUDENTS),
            slide_level__semisupervised_methods=list(STUDENTS),
            labels__own__unlabeled=30,
            alpha=0.75,
        )()
        for call in (*STAGES[:2], ("features", "--method", "random")):
            assert main(call) == 0
        patch.setattr(Encoder, "forward", counted)
        assert main(("finetune", "--method", "random", "--seed", "0")) == 0
        for student in STUDENTS:
            for call in _calls(student):
                assert main(call) == 0
    return folder, counts


@pytest.fixture
def project(fitted: tuple[Path, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A copy of the project with its heads."""
    shutil.copytree(fitted[0], tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return


def test_no_patch_is_encoded(fitted: tuple[Path, list[int]]) -> None:
    assert fitted[1] == []


@pytest.mark.usefixtures("project")
def test_the_network_predicts_what_the_table_says() -> None:
    rows = read_patches(Path("data/index/patches.csv"))
    predictions = pd.read_csv("data/evaluation/random-0-supervised-0/predictions.csv")
    tested = predictions[predictions["split"] == "test"].set_index("patch_id")
    rows = rows[rows["patch_id"].isin(tested.index)].reset_index(drop=True)
    model, description = from_task_model(MODEL)
    pixels = torch.from_numpy(PatchReader(rows, patch_px=32, max_open_slides=4).read(np.arange(len(rows)))).float()
    with torch.inference_mode():
        probabilities = model.eval()(pixels / 255).softmax(dim=1).numpy()
    columns = [f"finetuned_{name}" for name in description["classes"]]
    np.testing.assert_allclose(probabilities, tested.loc[rows["patch_id"], columns], atol=0.01)
