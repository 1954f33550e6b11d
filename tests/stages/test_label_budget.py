"""No model looks at a label outside its budget: other labels in their place change no prediction and no weight.

Two trainings with one seed are compared byte for byte: of classes and of scores, they are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from safetensors.numpy import load_file

from histo_monai.data.tables.predictions import Predictions, read_predictions
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.paths import PATCHES_CSV, WHOLE_SLIDES_CSV, Run
from tests.hostile.project import ROOT, STAGES, write_own_project

RUN = ("--method", "random", "--seed", "0")
STEPS = {"epochs": 2, "steps_per_epoch": 2, "batch_size": 4}


def _project(*, scores: bool, mode: str, student: str) -> None:
    """Own slides, half of whose labels are given; labels select by cross-validation."""
    write_own_project()
    table = Path("data/raw/own/patches.csv")
    patches = pd.read_csv(table)
    if scores:
        patches = patches.drop(columns="label").assign(score=np.linspace(0, 1, len(patches)).round(3))
    patches.to_csv(table, index=False)
    params: Any = yaml.safe_load(Path("params.yaml").read_text())
    whole: Any = yaml.safe_load((ROOT / "params.yaml").read_text())
    params |= {"semisupervised_methods": [student], "alpha": 0.5}
    params["finetune"]["mode"] = mode
    params["slide_level"]["pretraining_methods"] = []
    params["labels"]["own"]["validation"] = "labeled"
    for section in ("finetune", "consistency"):
        params[section]["recipe"] = whole[section]["recipe"] | STEPS
    params["consistency"]["methods"]["spatial_neighbors"]["epochs"] = 1
    Path("params.yaml").write_text(yaml.safe_dump(params))


def _train(student: str) -> tuple[dict[str, np.ndarray], Predictions]:
    """Weights of all models, and all predictions."""
    for stage in ("finetune", "consistency", "evaluate"):
        assert main([stage, *RUN]) == 0
    run = Run("random", 0, 0, student)
    folders = [run.finetuned, run.student_folder, *run.folds.values()]
    models = [path for folder in folders for path in sorted(folder.glob("*.safetensors"))]
    assert len(models) >= 6  # two models, and each without each fold
    weights = {f"{path}: {name}": value for path in models for name, value in load_file(path).items()}
    return weights, read_predictions(run.evaluation / "predictions.csv")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "student", "scores"),
    [
        ("all", "spatial_neighbors", False),
        ("all", "spatial_neighbors", True),
        ("head", "self_training", False),
        ("head", "supervised", True),
    ],
)
def test_labels_outside_the_budget_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, student: str, scores: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in (("DEVICE", "cpu"), ("CPUS", "1"), ("WORKERS", "0"), ("RANKS", "1")):
        monkeypatch.setenv(f"HISTO_MONAI_{name}", value)
    _project(scores=scores, mode=mode, student=student)
    for call in (("index",), ("pretrain", "--method", "random"), ("features", "--method", "random")):
        assert main(call) == 0
    weights, table = _train(student)
    patches = pd.read_csv(PATCHES_CSV, dtype=str, keep_default_na=False)
    is_hidden = (patches["split"] == "test") | (pd.to_numeric(patches["label_rank"], errors="coerce") >= 0.5)
    assert 4 < is_hidden.sum() < len(patches) - 4
    column = "score" if scores else "label"
    other = {"tumor": "normal", "normal": "tumor"}
    poison = "0.987" if scores else patches["label"].map(other)
    patches[column] = patches[column].mask(is_hidden, poison)
    patches.to_csv(PATCHES_CSV, index=False)
    poisoned_weights, poisoned = _train(student)
    assert weights.keys() == poisoned_weights.keys()
    for name, value in weights.items():
        assert value.tobytes() == poisoned_weights[name].tobytes(), name
    assert len(table.predictions) > 6  # networks and baselines
    assert {"validation", "test"} == set(table.rows["split"])
    for name, values in table.predictions.items():
        assert values.tobytes() == poisoned.predictions[name].tobytes(), name
    is_test = (table.rows["split"] == "test").to_numpy()
    assert not table.rows[column][is_test].equals(poisoned.rows[column][is_test])  # the poison was there


SLIDE_STAGES = (("mil", *RUN), ("aggregate", *RUN))
SLIDE_RUN = Run("random", 0, 0, "paper")


def _diagnose() -> tuple[dict[str, np.ndarray], dict[str, pd.DataFrame]]:
    """Tensors of all slide models, and all slide scores."""
    for stage in SLIDE_STAGES:
        assert main(stage) == 0
    folders = (SLIDE_RUN.mil / "networks", SLIDE_RUN.diagnosis / "classifiers")
    files = [path for folder in folders for path in sorted(folder.glob("*.safetensors"))]
    assert len(files) == 4  # the networks of two folds, a classifier for each of two map models
    tensors = {f"{path}: {name}": value for path in files for name, value in load_file(path).items()}
    tables = {
        str(folder): pd.read_csv(folder / "slides.csv") for folder in (SLIDE_RUN.mil, SLIDE_RUN.diagnosis)
    }
    return tensors, tables


@pytest.mark.slow
def test_labels_of_test_slides_change_no_slide_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in (("DEVICE", "cpu"), ("CPUS", "1"), ("WORKERS", "0"), ("RANKS", "1")):
        monkeypatch.setenv(f"HISTO_MONAI_{name}", value)
    write_own_project()
    for stage in STAGES[: STAGES.index(SLIDE_STAGES[0])]:
        assert main(stage) == 0
    tensors, tables = _diagnose()
    slides = pd.read_csv(WHOLE_SLIDES_CSV, dtype=str, keep_default_na=False)
    is_test = slides["split"] == "test"
    assert sorted(slides["label"][is_test]) == ["normal", "tumor"]
    slides["label"] = slides["label"].mask(
        is_test, slides["label"].map({"tumor": "normal", "normal": "tumor"})
    )
    slides.to_csv(WHOLE_SLIDES_CSV, index=False)
    poisoned_tensors, poisoned = _diagnose()
    assert tensors.keys() == poisoned_tensors.keys()
    for name, value in tensors.items():
        assert value.tobytes() == poisoned_tensors[name].tobytes(), name
    for name, table in tables.items():
        scores = [column for column in table.columns if table[column].dtype == float]
        assert scores
        pd.testing.assert_frame_equal(table[scores], poisoned[name][scores], check_exact=True)
        assert not table["label"].equals(poisoned[name]["label"])  # the poison was there
