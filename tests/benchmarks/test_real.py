"""`python -m benchmarks.real`: folds, label subsets, crossed intervals, and no label outside the budget."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from benchmarks.real import __main__ as program
from benchmarks.real import encoders, figures
from benchmarks.real.features import EncoderSource, FileSource
from benchmarks.real.jobs import Bench, Job
from benchmarks.real.models import frozen_models
from benchmarks.real.tasks import (
    ALL_LABELS,
    BUDGETS,
    TASKS,
    fold_of_rows,
    label_ranks,
    read_patches,
    split_rows,
    targets_of,
)
from benchmarks.real.trained import Trained, changed_params, training_rows, visible
from histo_monai.baselines import learners
from histo_monai.errors import InputError
from histo_monai.metrics import Resampling, intraclass_correlation
from histo_monai.networks.encoder import build_encoder

PATIENTS, EACH = 9, 12
CLASSES = TASKS["glas-classes"].classes or ()


def _archive(folder: Path, labels: np.ndarray, scores: np.ndarray) -> Path:
    """A glas-patches.zip of noise: nine patients, the last patch of each without a class."""
    folder.mkdir()
    random = np.random.default_rng(0)
    names = [f"glas/{patient}/{n}.png" for patient in range(PATIENTS) for n in range(EACH)]
    table = pd.DataFrame({"path": names, "patient_id": [f"p{name.split('/')[1]}" for name in names]})
    with zipfile.ZipFile(folder / "glas-patches.zip", "w") as archive:
        for name in names:
            picture = io.BytesIO()
            Image.fromarray(random.integers(0, 256, (128, 128, 3), dtype=np.uint8)).save(picture, "PNG")
            archive.writestr(name, picture.getvalue())
        archive.writestr("scores.csv", table.assign(score=scores, mpp=0.62).to_csv(index=False))
        has_class = np.arange(len(names)) % EACH < EACH - 1
        classes = table.assign(label=np.array(CLASSES)[labels], mpp=0.62)[has_class]
        archive.writestr("classes.csv", classes.to_csv(index=False))
    return folder


@pytest.fixture
def truth() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    return random.integers(0, 3, PATIENTS * EACH), random.random(PATIENTS * EACH).round(4)


@pytest.fixture
def real(tmp_path: Path, truth: tuple[np.ndarray, np.ndarray]) -> Path:
    return _archive(tmp_path / "real", *truth)


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learners, "TREES_IN_FOLDS", 3)


def _bench(real: Path, cache: Path) -> Bench:
    return Bench(
        real, cache, frozen_models({"random": encoders.write_encoder("random", cache / "encoders")}, {})
    )


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
        int((targets[split_rows(task, patches, 0, draw, 15).labeled] == 0).sum()) for draw in range(400)
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


def test_crossed_replicates_are_those_of_a_naive_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patients and label subsets are resampled apart; scikit-learn measures the rows written out."""
    monkeypatch.setattr(figures, "REPLICATES", 40)
    random = np.random.default_rng(2)
    patients = np.repeat([f"p{i}" for i in range(6)], [5, 9, 4, 7, 8, 6]).astype(object)
    classes = random.integers(0, 3, len(patients))
    two, scores = classes % 2, random.random(len(patients))
    of_classes = [random.dirichlet(np.ones(3), len(patients)) for _ in range(4)]
    of_two = [random.dirichlet(np.ones(2), len(patients)) for _ in range(4)]
    of_scores = [
        np.clip(scores + random.normal(0, 0.2, len(patients)), 0, 1).reshape(-1, 1) for _ in range(4)
    ]

    def recall(reference: np.ndarray, shares: np.ndarray) -> float:
        return balanced_accuracy_score(reference, shares.argmax(axis=1))

    def area(reference: np.ndarray, shares: np.ndarray) -> float:
        return roc_auc_score(reference, shares[:, 1])

    def agreement(reference: np.ndarray, predicted: np.ndarray) -> float:
        return intraclass_correlation(np.column_stack([reference, predicted]), form="ICC2").value

    cases = (
        ("balanced_accuracy", classes, of_classes, recall),
        ("auc", two, of_two, area),
        ("icc", scores, of_scores, agreement),
    )
    counts = np.hstack(list(Resampling(len(patients), patients, seed=0, num_replicates=40).blocks()))
    times = np.rint(figures.draw_weights(4) * 4).astype(int)
    assert (times.sum(axis=0) == 4).all()
    numbers = np.unique(patients.astype(str), return_inverse=True)[1]
    for name, reference, predictions, metric in cases:
        found, _ = figures.crossed(figures.METRICS[name], reference, patients, predictions)
        assert found.value == pytest.approx(np.mean([metric(reference, each) for each in predictions]))
        for b in range(40):
            rows = np.repeat(np.arange(len(patients)), counts[numbers, b].astype(int))
            chosen = np.repeat(np.arange(4), times[:, b])
            naive = np.mean([metric(reference[rows], predictions[d][rows]) for d in chosen])
            assert found.replicates[b] == pytest.approx(naive), (name, b)
        same = figures.difference(found, found)
        assert same.value == 0
        assert (same.replicates == 0).all()


def test_crossed_intervals_are_as_wide_as_the_spread_of_both_factors() -> None:
    """Hits of patient i and subset j are independent with effects of both: var = var_p / G + var_d / D + noise."""
    random = np.random.default_rng(3)
    num_patients, num_draws, each = 40, 8, 50
    patient, subset = random.normal(0, 0.08, (num_patients, 1)), random.normal(0, 0.06, (1, num_draws))
    chance = np.clip(0.6 + patient + subset, 0, 1)
    reference = np.zeros(num_patients * each, int)
    hits = random.random((num_draws, num_patients, each)) < chance.T[:, :, None]
    predictions = [np.column_stack([hit, ~hit]).astype(float) for hit in hits.reshape(num_draws, -1)]
    patients = np.repeat(np.arange(num_patients), each).astype(str)
    found, resampling = figures.crossed(
        figures.METRICS["balanced_accuracy"], reference, patients, predictions
    )
    table = hits.mean(axis=2)
    by_patient, by_draw = table.mean(axis=0).var(), table.mean(axis=1).var()
    expected = np.sqrt(by_patient / num_patients + by_draw / num_draws)
    assert np.std(found.replicates) == pytest.approx(expected, rel=0.1)
    interval = figures.estimate(found, resampling)
    assert interval.low < found.value < interval.high


def test_two_patients_have_no_interval() -> None:
    predictions = [np.eye(2)[np.array([0, 1, 0, 1])]]
    found, resampling = figures.crossed(
        figures.METRICS["balanced_accuracy"],
        np.array([0, 1, 1, 1]),
        np.array(["a", "a", "b", "b"]),
        predictions,
    )
    known = figures.estimate(found, resampling)
    assert known.value == pytest.approx((1 + 2 / 3) / 2)
    assert np.isnan(known.low)
    assert np.isnan(known.high)


@pytest.mark.parametrize("name", ["glas-classes", "glas-score"])
def test_labels_outside_the_budget_change_no_byte_of_a_prediction(
    name: str, tmp_path: Path, real: Path, truth: tuple[np.ndarray, np.ndarray]
) -> None:
    """All others are garbage in a second archive: those of unlabeled training patches, and of the test patients."""
    task = TASKS[name]
    patches = read_patches(real, task)
    for budget in (15, 30):
        labeled = split_rows(task, patches, 1, 2, budget).labeled
        labels, scores = (truth[0] + 1) % 3, 1 - truth[1]
        labels[labeled], scores[labeled] = truth[0][labeled], truth[1][labeled]
        poisoned = _archive(tmp_path / f"poisoned-{budget}", labels, scores)
        benches = [_bench(real, tmp_path / "cache"), _bench(poisoned, tmp_path / f"cache-{budget}")]
        for model in benches[0].models:
            job = Job(name, model, budget, 2, 1)
            if not benches[0].models[model].is_for(task):
                continue
            for bench in benches:
                bench.train(job)
            clean, dirty = (bench.read(job) for bench in benches)
            assert clean is not None
            assert dirty is not None
            assert clean.predictions.tobytes() == dirty.predictions.tobytes(), model
            assert clean.num_labels == dirty.num_labels == budget
        of_networks = [visible(bench.problem(Job(name, "majority", budget, 2, 1))) for bench in benches]
        columns = [column for column in of_networks[0] if column != "path"]
        pd.testing.assert_frame_equal(of_networks[0][columns], of_networks[1][columns])


def test_networks_are_given_the_labels_of_the_budget_and_no_others(tmp_path: Path, real: Path) -> None:
    problem = _bench(real, tmp_path / "cache").problem(Job("glas-classes", "majority", 15, 0, 0))
    patches = visible(problem)
    rows = training_rows(patches, problem)
    assert len(rows.labeled) == (patches["label"] != "").sum() == 15
    assert set(rows.unlabeled["patient_id"]).isdisjoint(patches["patient_id"].iloc[problem.split.tested])
    assert (rows.unlabeled["label"] != "").sum() == 15
    assert set(patches["split"].iloc[problem.split.tested]) == {"test"}


@pytest.mark.slow
def test_a_fine_tuned_network_reads_no_label_outside_the_budget(
    tmp_path: Path, real: Path, truth: tuple[np.ndarray, np.ndarray]
) -> None:
    task = TASKS["glas-classes"]
    labeled = split_rows(task, read_patches(real, task), 0, 0, 15).labeled
    labels = (truth[0] + 1) % 3
    labels[labeled] = truth[0][labeled]
    poisoned = _archive(tmp_path / "poisoned", labels, truth[1])
    changes = ("finetune.recipe.many_classes.epochs=1", "finetune.recipe.many_classes.steps_per_epoch=2")
    predictions = []
    for place in (real, poisoned):
        encoder = encoders.write_encoder("random", tmp_path / "encoders")
        bench = Bench(place, tmp_path / f"cache-{place.name}", {"net": Trained(encoder, "", changes, "cpu")})
        job = Job("glas-classes", "net", 15, 0, 0)
        bench.train(job)
        found = bench.read(job)
        assert found is not None
        predictions.append(found.predictions)
    assert predictions[0].shape == (3 * (EACH - 1), 3)
    np.testing.assert_allclose(predictions[0].sum(axis=1), 1, rtol=1e-5)
    assert predictions[0].tobytes() == predictions[1].tobytes()


def test_imagenet_features_are_those_of_the_packages_own_network() -> None:
    from efficientnet_lite_pytorch import EfficientNet

    path = encoders.package_file()
    theirs = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(path)).eval()
    ours = build_encoder(encoders.ARCHITECTURE, encoders.IMAGENET_PX).eval()
    tensors = torch.load(path, map_location="cpu", weights_only=True)
    ours.trunk.load_state_dict(encoders.renamed(tensors, ours.trunk.state_dict()))
    pixels = torch.rand(2, 3, encoders.IMAGENET_PX, encoders.IMAGENET_PX, generator=torch.manual_seed(0))
    with torch.no_grad():
        maps = theirs.extract_features((pixels - 0.5) / 0.5)
        features = ours(pixels)
    assert features.shape == (2, 1280)
    assert float(features.abs().mean()) > 0.05
    torch.testing.assert_close(features, maps.mean(dim=(2, 3)), rtol=0, atol=1e-5)


def test_an_encoder_that_is_not_published_retakes_statistics_in_each_fold(tmp_path: Path, real: Path) -> None:
    task = TASKS["glas-score"]
    source = EncoderSource(encoders.write_encoder("random", tmp_path / "encoders"))
    first, second = (source.features(real, tmp_path, task, fold)["encoder"] for fold in (0, 1))
    assert first.shape == (PATIENTS * EACH, 512)
    assert (first != second).any()
    assert source.digest(real, task, 0) != source.digest(real, task, 1)
    names = {path.name for path in (tmp_path / "features").iterdir()}
    assert len(names) == 2


def test_features_of_elsewhere_have_the_rows_of_the_table(tmp_path: Path, real: Path) -> None:
    task, path = TASKS["glas-score"], tmp_path / "theirs.npz"
    paths = read_patches(real, task)["patch_id"].to_numpy(str)
    rows = np.random.default_rng(0).random((len(paths), 5))
    np.savez(path, glas=rows, glas_paths=paths)
    np.testing.assert_array_equal(FileSource(path).features(real, tmp_path, task, 0)["encoder"], rows)
    np.savez(tmp_path / "other.npz", glas=rows, glas_paths=paths[::-1])
    with pytest.raises(InputError, match=r"glas_paths differs .* Fix: "):
        FileSource(tmp_path / "other.npz").features(real, tmp_path, task, 0)
    np.savez(tmp_path / "short.npz", glas=rows[1:])
    with pytest.raises(InputError, match=r"no array 'glas' of 108 rows\. Fix: "):
        FileSource(tmp_path / "short.npz").features(real, tmp_path, task, 0)


def test_a_run_goes_on_with_what_is_missing_and_repeats_what_another_encoder_made(
    tmp_path: Path, real: Path
) -> None:
    bench = _bench(real, tmp_path / "cache")
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
    assert [changed.read(job) is None for job in jobs] == [job.model != "majority" for job in jobs]


def test_all_labels_are_one_subset() -> None:
    bench = Bench(Path(), Path(), frozen_models({}, {}))
    jobs = bench.jobs(["breast"], BUDGETS, [0, 1, 2, 3, 4])
    assert len(jobs) == 2 * 2 * (5 * 5 + 1)
    assert {job.draw for job in jobs if job.budget == ALL_LABELS} == {0}


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
    assert "no model 'colour'. Fix: choose among majority, color." in capsys.readouterr().err
    with pytest.raises(InputError, match=r"no finetune\.recipe\.speed"):
        changed_params(["finetune.recipe.speed=1"], 64)


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


def test_every_task_runs_on_real_patches_and_majority_is_right_by_chance(
    real_slides: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Balanced accuracy of one answer for all is 1 / K where the folds agree on it; SOURCE.md has the counts."""
    numbers = {"glas": (2421, 9), "consep": (432, 27), "lung": (1391, 348), "breast": (909, 2)}
    for task in TASKS.values():
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
    assert program.main(["run", *common, *out]) == 0
    assert program.main(["report", *common, *out]) == 0
    assert program.main(["plan", *common]) == 0
    assert "364 runs count" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "real.csv", dtype={"budget": str}).set_index(["task", "budget", "metric"])
    assert list(table.reset_index()["task"].unique()) == list(TASKS)
    assert table.loc[("glas-classes", "120", "balanced_accuracy"), "value"] < 0.5
    assert table.loc[("glas-classes", "15", "balanced_accuracy"), "num_patients"] == 9
    assert table.loc[("consep", "15", "icc"), "value"] < 0.1
    assert table.loc[("breast", "15", "auc"), ["low", "high"]].isna().all()
    page = (tmp_path / "real.md").read_text()
    assert "2 patients: no test." in page
    assert "364 runs count, 364 of them are done" in page
