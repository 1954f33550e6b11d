"""From predictions of methods and seeds to the table: what stands in it, and what is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from histo_monai.data.tables.predictions import predictions_table, write_predictions
from histo_monai.evaluation.metrics import auc, delong_test
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.paths import Run
from tests.papers_way import in_the_papers_way

pytestmark = pytest.mark.slow

CLASSES = ["normal", "stroma", "tumor"]
NAMES = ("finetuned", "student")
BASELINES = ("color_mean", "color", "encoder_linear", "encoder_knn", "stacked")
SKILL = {"random": 0.3, "rsp": 2.5}
MAPPED = {"pretraining_methods": list(SKILL), "semisupervised_methods": ["paper"], "num_encoders": None}
Project = Callable[..., Path]


def _rows(split: str, scores: bool, num: int = 120, num_slides: int = 24) -> pd.DataFrame:
    random = np.random.default_rng(len(split))
    slides = [f"{split}-{i % num_slides}" for i in range(num)]
    score = np.round(random.random(num), 2)
    return pd.DataFrame(
        {
            "patch_id": [f"{split}-{i}" for i in range(num)],
            "split": split,
            "slide_id": slides,
            "patient_id": "",
            "label": "" if scores else [CLASSES[i] for i in random.integers(3, size=num)],
            "score": score if scores else np.nan,
            "rater_a": score if scores and split == "test" else np.nan,
            "rater_b": np.clip(score + 0.1, 0, 1) if scores and split == "test" else np.nan,
        }
    )


def _predictions(rows: pd.DataFrame, skill: float, random: np.random.Generator) -> np.ndarray:
    if rows["score"].notna().all():
        noise = 0.4 * np.exp(-skill) + 0.05
        return np.clip(rows[["score"]].to_numpy() + noise * random.normal(size=(len(rows), 1)), 0, 1)
    logits = random.normal(size=(len(rows), 3))
    logits[np.arange(len(rows)), pd.Index(CLASSES).get_indexer(pd.Index(rows["label"]))] += skill
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def _write_metrics(folder: Path, run: Run, value: float) -> None:
    """What `compare` reads of the metrics: the choice, the digest of the model, a value on validation patches."""
    metrics = {
        "choice": {"chosen": "student"},
        "provenance": {"inputs": {str(run.models["student"]): f"{run.seed}" * 64}},
        "validation": {"chosen": {"accuracy": {"value": value}}},
    }
    (folder / "metrics.json").write_text(json.dumps(metrics))


@pytest.fixture
def project(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A function that makes a project with predictions of methods and seeds, and goes into it."""

    def make(
        seeds: tuple[int, ...] = (0,),
        encoders: tuple[int, ...] = (0,),
        scores: bool = False,
        color: float = 0.1,
        **changes: Any,
    ) -> Path:
        params = in_the_papers_way(yaml.safe_load((root / "params.yaml").read_text()))
        params |= {"pretraining_methods": list(SKILL), "training_seeds": list(seeds)}
        params |= (
            {"dataset": "breastpathq", "pretraining_dataset": "breastpathq"}
            if scores
            else {"dataset": "kather"}
        )
        params["pretraining_seeds"] = list(encoders)
        params["slide_level"] = {
            "pretraining_methods": [],
            "semisupervised_methods": [],
            "num_encoders": None,
        }
        params["compare"] = {"seed": 0, "num_replicates": 200}
        params["corpora"]["breastpathq"]["mpps"] = changes.pop("mpps", [2.0, 4.0, 8.0])
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(params | changes))
        for method, skill in SKILL.items():
            for encoder, seed in itertools.product(encoders, seeds):
                tables = []
                for split in ("validation", "test"):
                    rows = _rows(split, scores)
                    random = np.random.default_rng([seed, len(method), *[encoder] * bool(encoder)])
                    predictions = {
                        name: _predictions(rows, skill + 0.1 * random.normal(), random) for name in NAMES
                    }
                    fixed = np.random.default_rng(9)
                    predictions |= {name: _predictions(rows, color, fixed) for name in BASELINES}
                    tables.append(predictions_table(rows, predictions, None if scores else CLASSES))
                folder = tmp_path / f"data/evaluation/{method}-{encoder}-paper-{seed}"
                folder.mkdir(parents=True, exist_ok=True)
                write_predictions(folder / "predictions.csv", tables)
                _write_metrics(folder, Run(method, encoder, seed, "paper"), skill / 5)
                learned = tmp_path / f"data/mil/{method}-{encoder}-{seed}"
                learned.mkdir(parents=True, exist_ok=True)
                (learned / "metrics.json").write_text('{"nothing_done": "no labels"}')
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return make


def test_the_model_of_the_best_method_on_validation_patches_is_recommended(project: Project) -> None:
    folder = project(seeds=(3, 1))
    assert main(["compare"]) == 0
    found = json.loads((folder / "data/models/chosen/chosen.json").read_text())
    assert found["model"] == "data/models/rsp-0-paper-3/student/model.safetensors"
    assert found["sha256"] == "3" * 64
    assert found["validation"] == {"random + paper": 0.06, "rsp + paper": 0.5}


def test_every_row_of_the_table_is_the_mean_of_its_seeds(project: Project) -> None:
    folder = project(seeds=(0, 1, 2, 3, 4))
    assert main(["compare"]) == 0
    table = pd.read_csv(folder / "data/comparison/table.csv", keep_default_na=False)
    assert len(table) == 2 * 4 * 11
    test = table[(table["split"] == "test") & (table["metric"] == "accuracy")]
    assert test["method"].tolist() == ["random", "rsp"] * 2 + ["color"] + ["random", "rsp"] * 3
    trainings = ["finetune", "finetune", "paper", "paper", ""]
    baselines = ["linear", "linear", "knn", "knn", "paper+color", "paper+color"]
    assert test["training"].tolist() == trainings + baselines
    assert test["mu"].tolist() == ["", "", "7", "7", "", *[""] * 4, "7", "7"]
    assert set(table["over"]) == {"slides and seeds"}
    each = []
    for seed in range(5):
        rows = pd.read_csv(folder / f"data/evaluation/rsp-0-paper-{seed}/predictions.csv").query(
            "split == 'test'"
        )
        decided = rows[[f"student_{name}" for name in CLASSES]].to_numpy().argmax(axis=1)
        each.append((np.array(CLASSES)[decided] == rows["label"]).mean())
    row = test[(test["method"] == "rsp") & (test["training"] == "paper")].iloc[0]
    assert float(row["value"]) == pytest.approx(np.mean(each), abs=1e-5)
    assert float(row["seed_sd"]) == pytest.approx(np.std(each, ddof=1), abs=1e-5)
    assert set(table["paper_value"]) == {""}


def test_several_encoders_take_the_place_of_seeds(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    """Mean, spread and interval are over the means of each encoder's runs; the page says so."""
    folder = project(encoders=(0, 3, 4, 5, 9), seeds=(0, 1))
    assert main(["compare"]) == 0
    table = pd.read_csv(folder / "data/comparison/table.csv").query(
        "split == 'test' and metric == 'accuracy'"
    )
    assert set(table["over"]) == {"slides and encoders"}
    assert set(table["num_encoders"]) == {5}
    assert set(table["num_seeds"]) == {10}
    of_encoders = []
    for encoder in (0, 3, 4, 5, 9):
        right = []
        for seed in (0, 1):
            path = folder / f"data/evaluation/rsp-{encoder}-paper-{seed}/predictions.csv"
            rows = pd.read_csv(path).query("split == 'test'")
            decided = rows[[f"student_{name}" for name in CLASSES]].to_numpy().argmax(axis=1)
            right.append((np.array(CLASSES)[decided] == rows["label"]).mean())
        of_encoders.append(np.mean(right))
    row = table[(table["method"] == "rsp") & (table["training"] == "paper")].iloc[0]
    assert row["value"] == pytest.approx(np.mean(of_encoders), abs=1e-5)
    assert row["seed_sd"] == pytest.approx(np.std(of_encoders, ddof=1), abs=1e-5)
    report = (folder / "data/comparison/report.md").read_text()
    assert "seeds 0, 1 of encoders 0, 3, 4, 5, 9" in report
    assert "one encoder per method" not in report
    assert "spread is uncertain" not in report
    project(encoders=(0, 3), seeds=(0,))
    caplog.clear()
    assert main(["compare"]) == 0
    assert "2 encoders: their spread is uncertain" in caplog.text


def test_the_better_method_is_called_better_and_the_summary_counts_it(project: Project) -> None:
    folder = project(seeds=(0, 1, 2, 3, 4))
    assert main(["compare"]) == 0
    out = folder / "data/comparison"
    assert {path.name for path in out.iterdir()} == {
        "table.csv",
        "tests.csv",
        "report.md",
        "table.png",
        "metrics.json",
        "summary.json",
    }
    tests = pd.read_csv(out / "tests.csv")
    assert len(tests) == 2 * 4 * (10 + 6 * 3)
    assert tests["family"].value_counts().to_dict() == {"models": 2 * 4 * 10, "baselines": 2 * 4 * 18}
    pair = tests.query("split == 'test' and first == 'random-finetune' and second == 'rsp-finetune'")
    assert set(pair["verdict"]) == {"worse"}
    assert dict(zip(pair["metric"], pair["test"], strict=True))["macro_auc"] == "DeLong"
    assert (tests["p_holm"] >= tests["p"] - 1e-9).all()
    report = (out / "report.md").read_text()
    assert "- **accuracy** — better: RSP fine-tuned, RSP + CR; not distinguishable: random + CR." in report
    assert "one encoder per method" in report
    assert "one seed" not in report
    assert "paper" not in report
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary) == {
        *(f"test_{metric}" for metric in tests["metric"].unique()),
        "verdicts",
    }
    counts = tests.query("split == 'test'")["verdict"].value_counts()
    assert {name: count for name, count in summary["verdicts"].items() if count} == counts.to_dict()


def test_one_seed_is_reported_as_one_and_scores_have_both_raters(project: Project) -> None:
    folder = project(scores=True)
    assert main(["compare"]) == 0
    table = pd.read_csv(folder / "data/comparison/table.csv")
    assert set(table.query("split == 'test'")["metric"]) == {"icc_a", "icc_b"}
    assert set(table.query("split == 'validation'")["metric"]) == {"icc"}
    assert set(table["over"]) == {"patches"}
    assert table["seed_sd"].isna().all()
    report = (folder / "data/comparison/report.md").read_text()
    assert "- one seed: " in report
    assert "- ICC intervals of one seed are F-based" in report
    assert set(pd.read_csv(folder / "data/comparison/tests.csv")["over"]) == {"slides"}


def test_the_papers_numbers_stand_beside_real_data_of_its_kind_and_never_beside_simulated(
    project: Project,
) -> None:
    papers = {"patch_px": 256, "mpps": [0.5, 1.0, 2.0]}
    project(scores=True, source="raw", **papers)
    assert main(["compare"]) == 0
    table = (
        pd.read_csv("data/comparison/table.csv").query("metric == 'icc_a'").set_index(["method", "training"])
    )
    assert table.loc[("rsp", "paper"), "paper_value"] == 0.876
    assert table.loc[("random", "finetune"), "paper_high"] == 0.73
    assert table["paper_value"].isna().sum() == 7  # Color alone, and the other baselines.
    assert np.isnan(table.loc[("color", np.nan), "paper_value"])
    project(scores=True, source="phantom", **papers)
    assert main(["compare"]) == 0
    assert pd.read_csv("data/comparison/table.csv")["paper_value"].isna().all()


def test_baselines_cost_the_main_comparisons_nothing(project: Project) -> None:
    """P-values of networks and color are Holm's over their own ten pairs, and those of the baselines over theirs."""
    folder = project(seeds=(0, 1, 2))
    assert main(["compare"]) == 0
    tests = pd.read_csv(folder / "data/comparison/tests.csv").query("split == 'test'")
    for (_, family), of_family in tests.groupby(["metric", "family"]):
        ordered = of_family.sort_values("p")
        steps = ordered["p"].to_numpy() * np.arange(len(ordered), 0, -1)
        np.testing.assert_allclose(ordered["p_holm"], np.maximum.accumulate(steps).clip(max=1), rtol=1e-4)
        baselines = of_family["first"].str.contains("linear|knn|color") & (of_family["first"] != "color")
        assert baselines.all() if family == "baselines" else not baselines.any()
    report = (folder / "data/comparison/report.md").read_text()
    section = report.split("### Fast baselines")[1].split("###")[0]
    assert "| RSP frozen, linear against RSP fine-tuned |" in section
    assert "| random + CR + color against color alone |" in section


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("color", [0.1, 4.0])
def test_the_report_begins_with_color_where_color_is_ahead(
    project: Project, color: float, scores: bool
) -> None:
    folder = project(scores=scores, color=color)
    assert main(["compare"]) == 0
    report = (folder / "data/comparison/report.md").read_text()
    table = pd.read_csv(folder / "data/comparison/table.csv")
    metric = "icc_a" if scores else "accuracy"
    of_metric = table[(table["split"] == "test") & (table["metric"] == metric)]
    networks = of_metric[of_metric["training"].isin(["finetune", "paper"])]["value"].max()
    alone = of_metric[of_metric["method"] == "color"]["value"].item()
    assert (alone > networks) == (color > 1)
    name = "ICC(2,1) with A" if scores else "accuracy"
    headline = f"**Color alone is better than every network: {name} {alone:.2f} against {networks:.2f}.**"
    assert (report.splitlines()[2] == headline) == (alone > networks)
    assert ("Color alone is better" in report) == (alone > networks)


def test_predictions_of_an_older_version_are_refused(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project() / "data/evaluation/rsp-0-paper-0/predictions.csv"
    table = pd.read_csv(path)
    table.drop(columns=[f"stacked_{name}" for name in CLASSES]).to_csv(path, index=False)
    assert main(["compare"]) == 1
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.endswith(
        "predictions.csv: no predictions of 'stacked'. Fix: run `dvc repro evaluate@rsp-0-paper-0` "
        "[docs/commands.md#compare]"
    )


def test_a_missing_run_and_other_patches_are_reported_in_one_line(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project(seeds=(0, 1))
    path = folder / "data/evaluation/rsp-0-paper-1/predictions.csv"
    table = pd.read_csv(path)
    table.iloc[::-1].to_csv(path, index=False)
    assert main(["compare"]) == 1
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert (
        "random-0-paper-0/predictions.csv and data/evaluation/rsp-0-paper-1/predictions.csv: row 2 has patch_id"
        in message
    )
    path.unlink()
    assert main(["compare"]) == 1
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.endswith(
        "rsp-0-paper-1/predictions.csv: not found. Fix: run `dvc repro evaluate@rsp-0-paper-1` "
        "[docs/commands.md#compare]"
    )
    assert not (folder / "data/comparison").exists()


def _diagnose(folder: Path, method: str, seed: int, skill: float, encoder: int = 0) -> pd.DataFrame:
    """Scores of 40 test slides, which tell tumor the better the greater the skill."""
    is_tumor = np.arange(40) % 2 == 0
    random = np.random.default_rng([seed, len(method)])
    table = pd.DataFrame(
        {
            "slide_id": [f"test_{i:03d}" for i in range(40)],
            "patient_id": "",
            "split": "test",
            "label": np.where(is_tumor, "tumor", "normal"),
            "size": np.where(is_tumor, "macro", ""),
            "finetuned_score": random.normal(size=40) + skill * is_tumor,
            "finetuned_score_by_seen": 0.0,
            "student_score": random.normal(size=40) + skill * is_tumor,
        }
    )
    path = folder / f"data/diagnosis/{method}-{encoder}-paper-{seed}/slides.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False)
    return table


def test_slides_are_compared_by_auc_with_delongs_test(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project(dataset="camelyon16", slide_level=MAPPED)
    assert main(["compare"]) == 1
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.endswith(
        "random-0-paper-0/slides.csv: not found. Fix: run `dvc repro aggregate`. [docs/files.md]"
    )
    tables = {
        method: _diagnose(folder, method, 0, skill) for method, skill in (("random", 0.2), ("rsp", 3.0))
    }
    assert main(["compare"]) == 0
    table = pd.read_csv(folder / "data/comparison/table.csv").query("split == 'test slides'")
    assert set(table["metric"]) == {"slide_auc"}
    scores = {"finetune": "finetuned_score", "paper": "student_score"}
    for row in table.itertuples():
        slides = tables[row.method]
        area = auc(slides["label"] == "tumor", slides[scores[row.training]])
        assert (row.value, row.low, row.high) == pytest.approx((area.value, area.low, area.high), abs=1e-5)
    tests = pd.read_csv(folder / "data/comparison/tests.csv").query("split == 'test slides'")
    assert set(tests["test"]) == {"DeLong"}
    pair = tests.query("first == 'random-finetune' and second == 'rsp-finetune'").iloc[0]
    truth = delong_test(
        tables["random"]["label"] == "tumor",
        tables["random"]["finetuned_score"],
        tables["rsp"]["finetuned_score"],
    )
    assert pair["difference"] == pytest.approx(truth.difference.value, abs=1e-5)
    assert pair["verdict"] == "worse"
    summary = json.loads((folder / "data/comparison/summary.json").read_text())
    assert set(summary["test_slide_auc"]) == {
        f"{method}-{stage}" for method in SKILL for stage in ("finetune", "paper")
    }
    assert (
        "## Test slides: 20 tumor and 20 other slides" in (folder / "data/comparison/report.md").read_text()
    )


def test_of_several_encoders_those_that_map_slides_are_compared_by_slides(project: Project) -> None:
    folder = project(encoders=(4, 0), dataset="camelyon16", slide_level=MAPPED | {"num_encoders": 1})
    for method, skill in SKILL.items():
        _diagnose(folder, method, 0, skill, encoder=4)
    assert main(["compare"]) == 0
    table = pd.read_csv(folder / "data/comparison/table.csv")
    slides, patches = table.query("split == 'test slides'"), table.query("split == 'test'")
    assert set(slides["num_encoders"]) == {1}
    assert set(slides["over"]) == {"slides"}
    assert set(patches["num_encoders"]) == {2}
    assert set(patches["over"]) == {"slides and encoders"}
    assert (
        "20 tumor and 20 other slides; encoder 4 only" in (folder / "data/comparison/report.md").read_text()
    )


def test_diagnoses_of_other_slides_are_not_compared(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project(dataset="camelyon16", slide_level=MAPPED)
    for method in SKILL:
        _diagnose(folder, method, 0, 1.0)
    path = folder / "data/diagnosis/rsp-0-paper-0/slides.csv"
    path.write_text(path.read_text().replace("test_007", "test_700"))
    assert main(["compare"]) == 1
    assert "different slides, labels or models" in capsys.readouterr().err


def test_the_same_predictions_give_the_same_bytes(project: Project) -> None:
    folder = project(seeds=(0, 1)) / "data/comparison"
    assert main(["compare"]) == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["compare"]) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
