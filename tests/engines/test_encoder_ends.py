from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from histo_monai.engines import encoder_ends
from histo_monai.engines.encoder_ends import WHOLE, choose_end, choose_stages, end_features
from histo_monai.networks.encoder import build_encoder
from histo_monai.networks.task_model import TaskModel
from histo_monai.tables.tasks import dependence_groups, split_rows
from tests.waves import WaveTask

TaskBuilder = Callable[..., WaveTask]


@pytest.mark.parametrize("scores", [False, True])
def test_the_stages_that_are_kept_are_those_of_the_best_linear_model(
    wave_task: TaskBuilder, scores: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all ends but one give noise, that one is chosen; where all do but the whole, all is kept."""
    task = wave_task(24, scores)
    torch.manual_seed(0)
    rows = split_rows(task.patches, "train")
    labeled, groups = task.in_order(rows, 24), dependence_groups(rows)
    targets = labeled.targets.float()
    told = torch.stack([targets, targets.square()], dim=1)
    for end in range(4):
        noise = torch.Generator().manual_seed(end)
        given = [told if place == end else torch.randn(told.shape, generator=noise) for place in range(4)]
        model = TaskModel(build_encoder(), "linear", task.num_outputs)
        monkeypatch.setattr(model.encoder, "stage_features", lambda patches, given=given: given)
        stages, chosen = choose_stages(model, task, labeled, groups)
        assert stages == (None if end == 3 else end + 1)
        assert chosen is not None


def test_there_is_nothing_to_choose_where_labels_are_of_one_class_or_an_encoder_has_no_stages(
    wave_task: TaskBuilder,
) -> None:
    task = wave_task(8)
    rows = split_rows(task.patches, "train")
    groups = dependence_groups(rows)
    vit = TaskModel(build_encoder("test_vit", 64), "linear", task.num_outputs)
    assert choose_stages(vit, task, task.in_order(rows, 8), groups) == (None, None)
    alike = rows[rows["label"] == rows["label"].iloc[0]]
    model = TaskModel(build_encoder(), "linear", task.num_outputs)
    assert choose_stages(model, task, task.in_order(alike, 8), dependence_groups(alike)) == (None, None)


def test_features_at_an_end_are_those_of_an_encoder_that_ends_there(wave_task: TaskBuilder) -> None:
    task = wave_task(8)
    labeled = task.in_order(split_rows(task.patches, "train"), 3)
    torch.manual_seed(0)
    encoder = build_encoder()
    found = end_features(encoder, task, labeled.loader)
    assert list(found) == [WHOLE, "layer1", "layer2", "layer3"]
    patches = torch.cat([batch for batch, _ in labeled.loader]).squeeze(1).float() / 255
    for number, name in enumerate(found):
        state = encoder.state_dict()
        alone = build_encoder().eval()
        alone.load_state_dict(state)
        if number:
            alone.end_after(number)
        with torch.no_grad():
            expected = torch.cat([alone(patch[None]) for patch in patches])
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)


def test_of_many_labels_some_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_ends, "MOST_LABELS", 40)
    rng = np.random.default_rng(0)
    targets = rng.random(300)
    features = {
        WHOLE: rng.random((300, 4), np.float32),
        "layer1": np.stack([targets, targets**2], axis=1).astype(np.float32),
    }
    chosen = choose_end(features, targets, np.arange(300), None)
    assert chosen.model.candidate.features == "layer1"
    assert chosen.model._model[0].n_samples_seen_ == 40
