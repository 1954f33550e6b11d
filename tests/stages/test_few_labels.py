"""From labels to numbers on a simulated BreastPathQ: scores, two raters, and what the stages leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from histo_monai.evaluation.baselines.models import BASELINES, ENCODER, LEARNED
from histo_monai.evaluation.metrics import intraclass_correlation
from histo_monai.finetuning.learners import LEARNERS
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.params import load_params
from histo_monai.pipeline.paths import Run
from histo_monai.utils.storage import file_sha256
from histo_monai.wsi.heatmaps.heatmap import read_heatmap
from tests.event_files import scalars, table_of_runs
from tests.papers_way import in_the_papers_way

RUN = ("--method", "random", "--seed", "0")


@pytest.fixture(scope="module")
def project(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A project whose stages have all been run, and the module's working folder."""
    folder = tmp_path_factory.mktemp("breastpathq")
    params = in_the_papers_way(yaml.safe_load((root / "params.yaml").read_text()))
    params |= {"dataset": "breastpathq", "pretraining_dataset": "breastpathq", "alpha": 0.5, "patch_px": 32}
    params["slide_level"] = {
        "pretraining_methods": ["random"],
        "semisupervised_methods": ["paper"],
        "num_encoders": 1,
    }
    params["encoder"]["name"] = "test_resnet"
    params["phantom"] |= {"num_slides": 2, "num_patches": 40, "slide_side_px": 512}
    params["corpora"]["breastpathq"] |= {"num_train": 8, "num_validation": 4}
    for stage in ("finetune", "consistency"):
        params[stage]["paper"] |= {"epochs": 2}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HISTO_MONAI_DEVICE", "cpu")
        for stage in (("phantom",), ("index",), ("pretrain", "--method", "random")):
            assert main(stage) == 0
        for stage in ("finetune", "consistency", "evaluate"):
            assert main([stage, *RUN]) == 0
        yield folder


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.slow
def test_every_folder_holds_what_the_data_page_lists(project: Path) -> None:
    model = {"model.safetensors", "model.json", "curves.csv", "metrics.json", "summary.json"}
    run = Run("random", 0, 0, "paper")
    assert {path.name for path in (project / run.finetuned).iterdir()} == model | {"answers.png", "folds"}
    student = project / run.student_folder
    assert {path.name for path in student.iterdir()} == model | {"pairs.png", "choice.json", "folds"}
    names = {path.name for path in (project / "data/evaluation/random-0-paper-0").iterdir()}
    assert names == {"predictions.csv", "metrics.json", "summary.json", "plots"}
    plots = {path.name for path in (project / "data/evaluation/random-0-paper-0/plots").iterdir()}
    assert plots == {"scores_finetuned.png", "scores_student.png", "answers.png"}
    assert not list(project.glob("data/checkpoints/*"))
    description = _json(student / "model.json")
    assert (description["stage"], description["mu"], description["classes"]) == ("consistency", 7, None)


@pytest.mark.slow
def test_tensorboard_has_the_curves_of_every_training_and_compares_what_they_ended_with(
    project: Path,
) -> None:
    logs, run = project / "data/tensorboard", Run("random", 0, 0, "paper")
    folders = {"finetune/random-0-0": run.finetuned, "consistency/random-0-paper-0": run.student_folder}
    table = table_of_runs(logs)
    assert set(table) == {*folders, "pretrain/random-0"}  # which trains nothing and is compared all the same
    for name, folder in folders.items():
        metrics, curves = _json(folder / "metrics.json"), pd.read_csv(folder / "curves.csv")
        points = scalars(logs / name)
        for measure in ("loss", "absolute_error"):
            assert len(points[f"{measure}/validation"]) == len(curves) == 2
            assert table[name].metrics[f"final/validation_{measure}"] == pytest.approx(
                metrics[f"validation_{measure}"]
            )
    section = load_params(project / "params.yaml").finetune.paper.of("breastpathq")
    assert table["finetune/random-0-0"].hyperparameters == {
        "stage": "finetune", "dataset": "breastpathq", "method": "random", "student": "", "encoder": 0, "seed": 0,
        "alpha": 0.5, "patch_px": 32, **{name: getattr(section, name) for name in ("epochs", "batch_size", "lr")},
    }  # fmt: skip
    taught = table["consistency/random-0-paper-0"].hyperparameters
    assert (taught["student"], taught["mu"], taught["n_aug"]) == ("paper", 7, 7)


@pytest.mark.slow
def test_numbers_are_those_of_the_predictions(project: Path) -> None:
    folder = project / "data/evaluation/random-0-paper-0"
    predictions = pd.read_csv(folder / "predictions.csv")
    test = predictions[predictions["split"] == "test"]
    metrics = _json(folder / "metrics.json")
    for model in ("finetuned", "student", "color", "encoder_knn", "stacked"):
        ratings = np.stack([test["rater_b"], test[model]], axis=1)
        estimate = metrics["test"][model]["icc_b"]
        assert estimate["value"] == pytest.approx(intraclass_correlation(ratings).value, abs=1e-4)
        error = (test["rater_a"] - test[model]).abs().mean()
        assert metrics["test"][model]["mae_a"]["value"] == pytest.approx(error, abs=1e-4)
    assert set(metrics["test"]) >= {f"student_minus_{name}" for name in ("finetuned", *BASELINES)}
    for split in ("validation", "test"):
        rows = predictions[predictions["split"] == split]
        both = (rows["student"] + rows["color"]) / 2
        np.testing.assert_allclose(rows["stacked"], both, atol=2e-6)
    human = intraclass_correlation(test[["rater_a", "rater_b"]].to_numpy())
    assert metrics["test"]["human"]["icc"]["value"] == pytest.approx(human.value, abs=1e-4)
    assert metrics["test"]["chosen"] == metrics["test"][metrics["choice"]["chosen"]]
    assert predictions[["finetuned", "student"]].to_numpy().min() >= 0
    assert predictions[["finetuned", "student"]].to_numpy().max() <= 1


@pytest.mark.slow
def test_what_the_baselines_chose_and_what_they_are_made_from_is_on_record(project: Path) -> None:
    metrics = _json(project / "data/evaluation/random-0-paper-0/metrics.json")
    assert set(metrics["baselines"]) == set(LEARNED)
    for name, baseline in LEARNED.items():
        chosen = metrics["baselines"][name]
        ends = (ENCODER, "layer1", "layer2", "layer3") if ENCODER in baseline.features else ()
        assert chosen["features"] in (*baseline.features, *ends)
        assert chosen["learner"] in baseline.learners
        assert chosen["setting"] in LEARNERS[chosen["learner"]].settings
        assert 0 < chosen["score"] < 1
        assert chosen["num_folds"] >= 2
    encoder = project / "data/models/random-0/encoder.safetensors"
    assert metrics["provenance"]["inputs"]["data/models/random-0/encoder.safetensors"] == file_sha256(encoder)
    summary = _json(project / "data/evaluation/random-0-paper-0/summary.json")
    assert set(summary["test_icc_a"]) == {"finetuned", "student", "chosen", *BASELINES}


@pytest.mark.slow
def test_slides_without_labels_are_mapped_and_not_diagnosed(project: Path) -> None:
    for stage in ("heatmap", "aggregate"):
        assert main([stage, *RUN]) == 0
    maps = project / "data/heatmaps/random-0-paper-0"
    slides = pd.read_csv(maps / "slides.csv", dtype=str)["slide_id"]
    assert len(slides) == 2
    for slide_id in slides:
        heatmap = read_heatmap(maps / f"scores/{slide_id}.csv")
        assert heatmap.grid.shape == (2, 2)  # 512 µm in cells of 256
        assert set(heatmap.values) == {"finetuned", "student"}
    assert (maps / "plots/mosaic.png").is_file()
    diagnosis = project / "data/diagnosis/random-0-paper-0"
    assert {path.name for path in diagnosis.iterdir()} == {
        *("features.csv", "slides.csv", "metrics.json", "summary.json"),
        *("classifiers", "plots"),
    }
    assert _json(diagnosis / "metrics.json")["warnings"] == ["no diagnosis of slides: no slide has a label"]
    assert _json(diagnosis / "summary.json") == {}
    assert len(pd.read_csv(diagnosis / "features.csv")) == 2 * 2  # slides and models
