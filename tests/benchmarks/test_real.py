"""`python -m benchmarks.real`: folds, label subsets, runs, the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.real import __main__ as program
from benchmarks.real import unlike
from benchmarks.real.jobs import Bench
from benchmarks.real.models import frozen_models
from benchmarks.real.rows import MINUS, read_csv, table_rows, write_csv
from benchmarks.real.tasks import (
    ALL_LABELS,
    BUDGETS,
    REAL_TASKS,
    TASKS,
    fold_of_rows,
    label_ranks,
    read_patches,
    split_rows,
    targets_of,
)
from benchmarks.real.trained import Trained, changed_params
from histo_monai.utils.errors import InputError
from tests.benchmarks.real_data import EACH, PATIENTS, bench_of


def test_folds_leave_patients_out_and_every_patch_is_tested_once(real: Path) -> None:
    for name in ("glas-classes", "glas-score"):
        task = TASKS[name]
        patches = read_patches(real, task)
        tested = []
        for fold in range(task.num_folds):
            split = split_rows(task, patches, fold, 0, 15)
            patients = [
                set(patches["patient_id"].iloc[rows])
                for rows in (split.labeled, split.unlabeled, split.tested)
            ]
            assert patients[0] <= patients[1]
            assert not patients[1] & patients[2]
            tested += split.tested.tolist()
        has_label = EACH - 1 if task.classes else EACH
        assert len(tested) == len(set(tested)) == PATIENTS * has_label


def test_label_subsets_are_nested_and_random_and_look_at_no_class(real: Path) -> None:
    """A subset by class would have a third of each class; a random one is hypergeometric."""
    task = TASKS["glas-classes"]
    patches = read_patches(real, task)
    targets = targets_of(task, patches)
    subsets = [set(split_rows(task, patches, 0, 3, budget).labeled.tolist()) for budget in (15, 30, 60)]
    assert subsets[0] < subsets[1] < subsets[2] < set(split_rows(task, patches, 0, 3, ALL_LABELS).labeled)
    assert [len(subset) for subset in subsets] == [15, 30, 60]
    pool = split_rows(task, patches, 0, 0, ALL_LABELS).labeled
    counts = [
        int((targets[split_rows(task, patches, 0, subset, 15).labeled] == 0).sum()) for subset in range(400)
    ]
    n, fraction = len(pool), (targets[pool] == 0).mean()
    variance = 15 * fraction * (1 - fraction) * (n - 15) / (n - 1)
    assert abs(np.mean(counts) - 15 * fraction) < 4 * np.sqrt(variance / 400)
    assert 0.75 * variance < np.var(counts) < 1.3 * variance
    with pytest.raises(ValueError, match="240 labels asked for"):
        split_rows(task, patches, 0, 0, 240)


def test_tasks_of_one_dataset_label_the_same_patches() -> None:
    ranks = [label_ranks(TASKS[name], 50, 4) for name in ("glas-classes", "glas-score", "lung")]
    np.testing.assert_array_equal(ranks[0], ranks[1])
    assert (ranks[0] != ranks[2]).any()


def test_a_run_goes_on_with_what_is_missing_and_repeats_what_another_encoder_made(
    tmp_path: Path, real: Path
) -> None:
    bench = bench_of(real, tmp_path / "cache")
    jobs = [job for job in bench.jobs(["glas-classes"], [15], [0]) if job.model != "color"]
    bench.run(jobs[:2], workers=1)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache/predictions").rglob("*.npz")}
    assert len(before) == 2
    bench.run(jobs, workers=1)
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert all(bench.read(job) is not None for job in jobs)
    other = tmp_path / "other.npz"
    np.savez(other, glas=np.random.default_rng(0).random((PATIENTS * EACH, 4)))
    changed = Bench(real, bench.cache, frozen_models({}, {"random": other}))
    assert [changed.read(job) is None for job in jobs] == [job.model.startswith("random-") for job in jobs]


def test_all_labels_are_one_subset() -> None:
    bench = Bench(Path(), Path(), frozen_models({}, {}))
    jobs = bench.jobs(["breast"], BUDGETS, [0, 1, 2, 3, 4])
    assert len(jobs) == len(bench.models) * 2 * (5 * 5 + 1)
    assert {job.subset for job in jobs if job.budget == ALL_LABELS} == {0}


def test_missing_data_files_and_packages_are_one_line(
    tmp_path: Path, real: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["plan", "--real", str(tmp_path), "--cache", str(tmp_path / "c")]) == 1
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "glas-patches.zip, consep-patches.zip, lung-patches.zip, idc-patches.zip missing" in line
    common = ["--real", str(real), "--cache", str(tmp_path / "c"), "--tasks", "glas-score", "--built-in"]
    assert program.main(["plan", *common, "--encoder", "ours=absent.safetensors"]) == 1
    assert "--encoder ours=absent.safetensors: no such file. Fix: " in capsys.readouterr().err
    assert program.main(["plan", *common, "--models", "colour"]) == 1
    assert "no model 'colour'. Fix: choose among majority, color, color-forest." in capsys.readouterr().err
    assert program.main(["report", *common, "--compare", "color:colour"]) == 1
    assert "--compare color:colour: not two models. Fix: " in capsys.readouterr().err
    with pytest.raises(InputError, match=r"no finetune\.recipe\.speed"):
        changed_params(["finetune.recipe.speed=1"], 64)


def test_networks_are_rows_by_what_they_train(tmp_path: Path) -> None:
    words = ["plan", "--cache", str(tmp_path), "--built-in", "random"]
    options = program.parser().parse_args([*words, "--networks", "finetuned", "last", "adapters"])
    models = program.models_of(options)
    modes = {}
    for name in ("finetuned", "last", "adapters"):
        network = models[f"random-{name}"]
        assert isinstance(network, Trained)
        modes[name] = changed_params(network.changes, 64).finetune.mode
    assert modes == {"finetuned": "all", "last": "last", "adapters": "adapters"}


@pytest.mark.parametrize(("labels", "known"), [("30", 0.71), ("60", 0.76), ("120", 0.78)])
def test_the_committed_figures_are_those_known_of_class_means_on_glas(
    root: Path, labels: str, known: float
) -> None:
    """Measured apart from this program on the same nine patients, with other folds and subsets."""
    table = pd.read_csv(root / "docs/real.csv", dtype={"budget": str}).set_index(["task", "model", "budget"])
    row = table.loc[("glas-classes", "imagenet-means", labels)]
    assert row["value"] == pytest.approx(known, abs=0.03)
    assert row["low"] < row["value"] < row["high"]
    assert row["num_subsets"] == 5


def test_the_page_names_no_place_of_the_machine() -> None:
    words = [
        "--real",
        "/a/b",
        "--tasks",
        "lung",
        "--encoder",
        "ours=/a/encoder.safetensors",
        "--workers",
        "4",
        "--fresh",
    ]
    assert program.repeated(words) == "--tasks lung --encoder ours=encoder.safetensors --fresh"


@pytest.mark.parametrize("place", ["", "/elsewhere/"])
def test_the_page_names_a_file_of_arguments(root: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "docs")
    file = "@" + (place or "../benchmarks/real/") + "report.args"
    named = "@report.args" if place else "@benchmarks/real/report.args"
    assert program.repeated(["--workers", "4", file, "--cache", "/a"]) == named


def test_the_committed_arguments_are_those_of_the_committed_page(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    words = ["report", "@benchmarks/real/report.args"]
    options = program.parser().parse_args(words)
    rows = pd.read_csv(root / "docs/real.csv")
    names = set(rows["model"])
    assert set(options.models) == {name for name in names if MINUS not in name}
    assert len(options.compare) == 16
    assert {pair.replace(":", MINUS) for pair in options.compare} <= names
    assert options.fresh
    commands = [
        f"python -m benchmarks.real {what} {program.repeated(words[1:])}"
        for what in ("plan", "run", "report")
    ]
    assert "```bash\n" + "\n".join(commands) + "\n```\n" in (root / "docs/real.md").read_text()


def test_the_committed_page_has_the_figures_of_the_committed_csv(root: Path, tmp_path: Path) -> None:
    figures = read_csv(root / "docs/real.csv")
    write_csv(tmp_path / "again.csv", figures)
    assert (tmp_path / "again.csv").read_bytes() == (root / "docs/real.csv").read_bytes()
    sections = (root / "docs/real.md").read_text().split("\n## ")[-len(REAL_TASKS) :]
    for name, section in zip(REAL_TASKS, sections, strict=True):
        of_task = [figure for figure in figures if figure.task == name]
        budgets = list(dict.fromkeys(figure.budget for figure in of_task))
        rows = [
            row
            for metric in TASKS[name].metrics
            for row in table_rows([figure for figure in of_task if figure.metric == metric], budgets)
        ]
        assert section.startswith(f"{name}\n")
        assert section.splitlines()[6:] == rows


def test_lines_of_a_file_of_arguments_have_words_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "some.args"
    path.write_text("# all of it\n\n--tasks lung  # a task\nconsep\n--budgets 15 30\n")
    options = program.parser().parse_args(["plan", f"@{path}", "--workers", "2"])
    assert (options.tasks, options.budgets, options.workers) == (["lung", "consep"], [15, 30], 2)


def test_every_task_runs_on_real_patches_and_majority_is_right_by_chance(
    real_slides: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Balanced accuracy of one answer for all is 1 / K where the folds agree on it; SOURCE.md has the counts."""
    numbers = {"glas": (2421, 9), "consep": (432, 27), "lung": (1391, 348), "breast": (909, 2)}
    for task in map(TASKS.__getitem__, REAL_TASKS):
        patches = read_patches(real_slides, task)
        assert (len(patches), patches["patient_id"].nunique()) == numbers[task.dataset]
        targets, folds = targets_of(task, patches), fold_of_rows(task, patches)
        for fold in range(task.num_folds):
            trained = targets[folds != fold]
            assert task.classes is None or {*range(len(task.classes))} <= set(trained.tolist())
    classes = targets_of(TASKS["glas-classes"], read_patches(real_slides, TASKS["glas-classes"]))
    assert np.bincount(classes[classes >= 0]).tolist() == [573, 774, 337]
    out = ["--csv", str(tmp_path / "real.csv"), "--page", str(tmp_path / "real.md")]
    common = [
        "--real",
        str(real_slides),
        "--cache",
        str(tmp_path / "cache"),
        "--built-in",
        "--models",
        "majority",
    ]
    assert program.main(["run", *common, "--workers", "2"]) == 0
    assert program.main(["report", *common, *out]) == 0
    assert program.main(["plan", *common]) == 0
    assert "364 runs count" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "real.csv", dtype={"budget": str}).set_index(["task", "budget", "metric"])
    assert list(table.reset_index()["task"].unique()) == REAL_TASKS
    assert table.loc[("glas-classes", "120", "balanced_accuracy"), "value"] < 0.5
    assert table.loc[("glas-classes", "15", "balanced_accuracy"), "num_patients"] == 9
    assert table.loc[("consep", "15", "icc"), "value"] < 0.1
    assert table.loc[("breast", "15", "auc"), ["low", "high"]].isna().all()
    page = (tmp_path / "real.md").read_text()
    assert "2 patients: no test." in page
    assert "364 runs count, 364 of them are done" in page


def test_changed_patches_are_those_of_the_table_changed_alone(real: Path) -> None:
    rows = read_patches(real, TASKS["glas-classes"]).iloc[:3]
    unchanged = list(unlike.changed_patches(real, rows, lambda pixels, number: pixels))
    assert [pixels.shape for pixels in unchanged] == [(128, 128, 3)] * 3
    for number, pixels in enumerate(unchanged):
        marked = unlike.pen(pixels, number)
        is_changed = (marked != pixels).any(axis=2)
        assert 0.05 < is_changed.mean() < 0.95
        assert unlike.blurred(3.0)(pixels, 0).std() < pixels.std()
        assert unlike.coarser(pixels, 0).shape == (79, 79, 3)


@pytest.mark.parametrize("name", ["nearest, cosine", "Mahalanobis"])
def test_tissue_that_no_patient_has_is_far_by_a_distance(name: str) -> None:
    random = np.random.default_rng(0)
    patients = np.repeat(np.arange(6), 40)
    one, another = 20 * np.eye(80)[:2]
    training, new, other = (
        (center + random.normal(0, 1, (num, 80))).astype(np.float32)
        for num, center in ((240, one), (50, one), (50, another))
    )
    of = unlike.DISTANCES[name]
    assert of(training, patients, other).min() > 1
    assert of(training, patients, other).min() > of(training, patients, new).max()
    assert (of(training, patients, new) > 1).mean() < 0.3
