from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from histo_monai.data.tables.tasks import dependence_groups, split_rows
from histo_monai.finetuning.linear_start import probe_head
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.training.prediction import predict, take_statistics
from tests.waves import SIDE, WaveTask

TaskBuilder = Callable[..., WaveTask]


@pytest.mark.parametrize("head", ["pair", "linear"])
@pytest.mark.parametrize("scores", [False, True])
def test_the_probed_model_answers_as_scikit_learn_does_on_its_features(
    wave_task: TaskBuilder, head: str, scores: bool
) -> None:
    task = wave_task(16, scores)
    torch.manual_seed(0)
    model = TaskModel(build_encoder("test_resnet", SIDE), head, task.num_outputs)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rows = split_rows(task.patches, "train")
    labeled = task.in_order(rows, 16)
    chosen = probe_head(model, task, labeled, dependence_groups(rows))
    assert chosen is not None
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) != name.startswith("head.linear"), name

    with torch.no_grad():  # one patch after the other
        patches = torch.cat([batch for batch, _ in labeled.loader]).squeeze(1).float() / 255
        seen = torch.cat([model.encoder(patch[None]) for patch in patches])
        if head == "pair":
            seen = model.head.pair_mlp.layers(torch.cat([seen, seen], dim=1)).repeat(1, 3)
    setting, targets = chosen.model.candidate.setting, labeled.targets.numpy()
    answers = predict(model, task, labeled.loader).numpy()
    if scores:
        expected = (
            make_pipeline(StandardScaler(), Ridge(1 / setting)).fit(seen, targets).predict(seen)[:, None]
        )
    else:
        logistic = make_pipeline(StandardScaler(), LogisticRegression(C=setting, max_iter=100))
        expected = logistic.fit(seen, targets).predict_proba(seen)
    np.testing.assert_allclose(answers, expected, atol=2e-3)


def test_labels_of_one_class_leave_the_layer_as_it_is(wave_task: TaskBuilder) -> None:
    task = wave_task(8)
    rows = split_rows(task.patches, "train")
    rows = rows[rows["label"] == rows["label"].iloc[0]]
    model = TaskModel(build_encoder(), "linear", task.num_outputs)
    before = model.head.linear.weight.clone()
    assert probe_head(model, task, task.in_order(rows, 8), dependence_groups(rows)) is None
    assert torch.equal(model.head.linear.weight, before)


def test_the_layers_below_use_the_statistics_of_unaugmented_patches(wave_task: TaskBuilder) -> None:
    task = wave_task(16)
    torch.manual_seed(0)
    model = TaskModel(build_encoder(), "linear", task.num_outputs)
    rows = split_rows(task.patches, "train")
    labeled, groups = task.in_order(rows, 16), dependence_groups(rows)
    expected = copy.deepcopy(model)
    take_statistics(expected, task, labeled)
    probe_head(expected, task, labeled, groups)
    without = copy.deepcopy(model)
    probe_head(without, task, labeled, groups)
    probe_head(model, task, labeled, groups, labeled)
    for name, value in model.state_dict().items():
        assert torch.equal(value, expected.state_dict()[name]), name
    assert not torch.equal(model.head.linear.weight, without.head.linear.weight)
