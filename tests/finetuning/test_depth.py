from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from histo_monai.data.tables.tasks import dependence_groups, split_rows
from histo_monai.finetuning import depth
from histo_monai.finetuning.depth import WHOLE, choose_depth, depth_features, select_depth
from histo_monai.finetuning.learners import Chosen, Model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from tests.waves import WaveTask

TaskBuilder = Callable[..., WaveTask]


@pytest.mark.parametrize("scores", [False, True])
def test_the_selected_stages_are_those_of_the_best_linear_model(
    wave_task: TaskBuilder, scores: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all ends but one give noise, that one is chosen; where all do but the whole, all is kept."""
    task = wave_task(24, scores)
    torch.manual_seed(0)
    rows = split_rows(task.patches, "train")
    labeled, groups = task.in_order(rows, 24), dependence_groups(rows)
    targets = labeled.targets.float()
    informative = torch.stack([targets, targets.square()], dim=1)
    for end in range(4):
        noise = torch.Generator().manual_seed(end)
        given = [
            informative if place == end else torch.randn(informative.shape, generator=noise)
            for place in range(4)
        ]
        model = TaskModel(build_encoder(), "linear", task.num_outputs)
        monkeypatch.setattr(model.encoder, "stage_features", lambda patches, given=given: given)
        stages, chosen = select_depth(model, task, labeled, groups)
        assert stages == (None if end == 3 else end + 1)
        assert chosen is not None


def test_there_is_nothing_to_choose_where_labels_are_of_one_class_or_an_encoder_has_no_stages(
    wave_task: TaskBuilder,
) -> None:
    task = wave_task(8)
    rows = split_rows(task.patches, "train")
    groups = dependence_groups(rows)
    vit = TaskModel(build_encoder("test_vit", 64), "linear", task.num_outputs)
    assert select_depth(vit, task, task.in_order(rows, 8), groups) == (None, None)
    alike = rows[rows["label"] == rows["label"].iloc[0]]
    model = TaskModel(build_encoder(), "linear", task.num_outputs)
    assert select_depth(model, task, task.in_order(alike, 8), dependence_groups(alike)) == (None, None)


def test_features_at_an_end_are_those_of_an_encoder_that_ends_there(wave_task: TaskBuilder) -> None:
    task = wave_task(8)
    labeled = task.in_order(split_rows(task.patches, "train"), 3)
    torch.manual_seed(0)
    encoder = build_encoder()
    found = depth_features(encoder, task, labeled.loader)
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
    monkeypatch.setattr(depth, "MOST_LABELS", 40)
    rng = np.random.default_rng(0)
    targets = rng.random(300)
    features = {
        WHOLE: rng.random((300, 4), np.float32),
        "layer1": np.stack([targets, targets**2], axis=1).astype(np.float32),
    }
    chosen = choose_depth(features, targets, np.arange(300), None)
    assert chosen.model.candidate.features == "layer1"
    assert chosen.model._model[0].n_samples_seen_ == 40


def test_the_earliest_end_is_taken_that_is_as_good_as_the_best() -> None:
    rng = np.random.default_rng(0)
    targets, groups = rng.random(200), np.arange(200) // 5
    good = (targets + 0.1 * rng.standard_normal(200))[:, None].astype(np.float32)
    poor = (targets + 0.5 * rng.standard_normal(200))[:, None].astype(np.float32)

    def end(**features: np.ndarray) -> str:
        return choose_depth(features, targets, groups, None).model.candidate.features

    assert end(encoder=good, layer1=good, layer2=good) == "layer1"
    assert end(encoder=good, layer1=poor, layer2=good) == "layer2"
    assert end(encoder=good, layer1=poor, layer2=poor) == WHOLE


@pytest.mark.parametrize(("standard_errors", "end"), [(1.9, "layer1"), (2.1, WHOLE)])
def test_an_earlier_end_may_be_behind_by_two_standard_errors(
    monkeypatch: pytest.MonkeyPatch, standard_errors: float, end: str
) -> None:
    noise = np.random.default_rng(0).standard_normal(40)
    noise = (noise - noise.mean()) / noise.std()  # errors whose mean has a standard error of 1 / sqrt(40)
    errors = {WHOLE: np.zeros(40), "layer1": noise + standard_errors / np.sqrt(40)}

    def chosen(*_: object, names: list[str], **__: object) -> Chosen:
        model = SimpleNamespace(candidate=SimpleNamespace(features=names[0]))
        return Chosen(cast(Model, model), 0.0, 5, True, errors[names[0]], np.arange(40))

    monkeypatch.setattr(depth, "choose_model", chosen)
    features = {name: np.zeros((40, 1), np.float32) for name in errors}
    assert choose_depth(features, np.zeros(40), np.arange(40), None).model.candidate.features == end


def test_patients_are_taken_whole_where_ends_are_compared() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 7, 60)
    values = rng.standard_normal(60)
    found = depth._standard_error(values, groups)
    means = [
        np.concatenate([values[groups == group] for group in rng.integers(0, 7, 7)]).mean()
        for _ in range(20_000)
    ]
    assert found == pytest.approx(np.std(means), rel=0.1)
    alone = depth._standard_error(values, np.arange(60))
    assert alone == pytest.approx(values.std() / np.sqrt(60))
