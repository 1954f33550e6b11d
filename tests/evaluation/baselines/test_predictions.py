from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from torch import nn

from histo_monai.data.tables.tasks import dependence_groups, split_rows
from histo_monai.evaluation.baselines.colors import color_features
from histo_monai.evaluation.baselines.models import BASELINES, LEARNED
from histo_monai.evaluation.baselines.predictions import LABELED, BaselinePredictions, predict_baselines
from histo_monai.finetuning import learners
from histo_monai.finetuning.depth import depth_features
from histo_monai.finetuning.learners import LEARNERS
from histo_monai.models.encoder import Encoder
from tests.waves import SIDE, WaveTask

TaskBuilder = Callable[..., WaveTask]
SPLITS = ("validation", "test")


@pytest.fixture(autouse=True)
def small_forests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEARNERS, "forest", replace(LEARNERS["forest"], settings=(30,)))
    monkeypatch.setattr(learners, "TREES_IN_FOLDS", 10)


class Edges(nn.Module):
    """A frozen trunk that knows waves: how steep a patch is, how bright, and how noisy."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        steep = patches.mean(dim=1).diff(dim=-1).abs().mean(dim=(1, 2))
        noise = patches.diff(dim=-2).abs().mean(dim=(1, 2, 3))
        return self.scale * torch.stack([steep, patches.mean(dim=(1, 2, 3)), noise], dim=1)


def _encoder(scale: float = 1.0) -> Encoder:
    kind = {"name": "edges", "img_px": SIDE, "num_features": 3, "any_size": True}
    return Encoder(Edges(scale), **kind, mean=(0.0,) * 3, std=(1.0,) * 3)


def _baselines(task: WaveTask, encoder: Encoder) -> BaselinePredictions:
    rows = {split: split_rows(task.patches, split) for split in ("train", *SPLITS)}
    loaders = {split: task.in_order(table, 7) for split, table in rows.items()}
    networks = {
        split: {"student": np.full((len(rows[split]), task.num_outputs), 1 / task.num_outputs)}
        for split in SPLITS
    }
    groups = dependence_groups(rows["train"])
    targets = loaders["train"].targets.numpy()
    loaders[LABELED] = loaders.pop("train")
    encoded = {split: depth_features(encoder, task, loader.loader) for split, loader in loaders.items()}
    colors = {split: color_features(loader.loader) for split, loader in loaders.items()}
    return predict_baselines(encoded, colors, targets, groups, task.num_classes, networks)


def _edges(task: WaveTask, split: str) -> tuple[np.ndarray, np.ndarray]:
    loader = task.in_order(split_rows(task.patches, split), 96)
    patches = next(iter(loader.loader))[0].squeeze(1).float() / 255
    return Edges()(patches).double().numpy(), loader.targets.numpy()


@pytest.mark.parametrize("scores", [False, True])
def test_every_baseline_predicts_every_patch_of_every_split(wave_task: TaskBuilder, scores: bool) -> None:
    task = wave_task(24, scores)
    baselines = _baselines(task, _encoder())
    assert set(baselines.predictions) == set(SPLITS)
    assert set(baselines.chosen) == set(LEARNED)
    for predicted in baselines.predictions.values():
        assert set(predicted) == {*BASELINES, *(() if scores else ("majority",))}
        for values in predicted.values():
            assert values.shape == (24, 1 if scores else 2)
            assert values.min() >= 0
            assert values.max() <= 1
        together = predicted["color"] / 2 + 0.5 if scores else np.sqrt(np.maximum(predicted["color"], 1e-3))
        np.testing.assert_allclose(
            predicted["stacked"], together / (1 if scores else together.sum(1, keepdims=True))
        )
    assert baselines.chosen["encoder_linear"].are_groups_apart  # four patches to a patient
    if not scores:
        labels = split_rows(task.patches, "train")["label"].value_counts(normalize=True).sort_index()
        np.testing.assert_allclose(
            baselines.predictions["test"]["majority"], np.tile(labels.to_numpy(), (24, 1))
        )


@pytest.mark.parametrize("scores", [False, True])
def test_the_linear_baseline_is_the_linear_model_on_features_of_the_frozen_encoder(
    wave_task: TaskBuilder, scores: bool
) -> None:
    task = wave_task(24, scores)
    baselines = _baselines(task, _encoder())
    strength = baselines.chosen["encoder_linear"].model.candidate.setting
    learned, targets = _edges(task, "train")
    rows, wanted = _edges(task, "test")
    mean, std = learned.mean(axis=0), learned.std(axis=0)
    linear = Ridge(alpha=1 / strength) if scores else LogisticRegression(C=strength)
    linear.fit((learned - mean) / std, targets)
    predicted = baselines.predictions["test"]["encoder_linear"]
    if scores:
        expected = np.clip(linear.predict((rows - mean) / std), 0, 1)[:, None]
        assert np.corrcoef(predicted[:, 0], wanted)[0, 1] > 0.8
    else:
        expected = linear.predict_proba((rows - mean) / std)
        assert (predicted.argmax(axis=1) == wanted).mean() > 0.9
        assert (baselines.predictions["test"]["color_mean"].argmax(axis=1) == wanted).mean() < 0.9
    np.testing.assert_allclose(predicted, expected, atol=2e-3)


def test_an_encoder_that_gives_no_number_is_refused_in_one_line(wave_task: TaskBuilder) -> None:
    with pytest.raises(ValueError, match=r"encoder.*not finite.*pretrain"):
        _baselines(wave_task(8), _encoder(float("nan")))
