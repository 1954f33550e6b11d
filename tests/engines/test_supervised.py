from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from histo_monai.engines.fit import Records
from histo_monai.engines.handlers import TrainingDivergedError
from histo_monai.engines.prediction import predict
from histo_monai.engines.supervised import FinetuneResult, finetune
from histo_monai.networks.encoder import build_encoder
from histo_monai.networks.task_model import TaskModel
from histo_monai.schedule import Schedule
from histo_monai.tables.tasks import split_rows
from tests.waves import WaveTask

TaskBuilder = Callable[..., WaveTask]


def _model(task: WaveTask) -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(build_encoder(), "pair", task.num_outputs)


def _finetune(model: TaskModel, task: WaveTask, **changes: Any) -> FinetuneResult:
    records = changes.pop("records", Records())
    settings = {"epochs": 2, "optimizer": "sgd", "lr": 0.01, "weight_decay": 1e-4, "milestones": ()}
    return finetune(
        model,
        task,
        task.shuffled(split_rows(task.patches, "train"), 8, seed=0, purpose="labeled"),
        task.in_order(split_rows(task.patches, "validation"), 16),
        schedule=Schedule(**{**settings, **changes}),
        seed=0,
        picture=lambda patches, predicted, targets: np.zeros((2, 2, 3), np.uint8),
        records=records,
    )


@pytest.mark.slow
@pytest.mark.parametrize("scores", [False, True])
def test_finetuning_learns_what_can_be_seen(wave_task: TaskBuilder, scores: bool) -> None:
    task = wave_task(48, scores)
    model = _model(task)
    _finetune(model, task, epochs=12, optimizer="adam", lr=1e-3)
    test = task.in_order(split_rows(task.patches, "test"), 16)
    predictions = predict(model, task, test.loader)
    if scores:
        assert float(np.corrcoef(predictions[:, 0], test.targets)[0, 1]) > 0.8
    else:
        assert float(task.objective.right(predictions, test.targets).mean()) > 0.9


def test_the_kept_weights_are_those_of_the_best_epoch(wave_task: TaskBuilder) -> None:
    task = wave_task()
    result = _finetune(_model(task), task, epochs=4, lr=0.05)
    ranks = [
        task.objective.rank({"accuracy": row["validation_accuracy"], "loss": row["validation_loss"]})
        for row in result.curves
    ]
    best = ranks.index(min(ranks))
    assert result.best_epoch == best + 1
    assert result.validation["loss"] == pytest.approx(result.curves[best]["validation_loss"], rel=1e-5)


def test_learning_rate_falls_to_a_tenth_after_each_milestone(wave_task: TaskBuilder) -> None:
    task = wave_task(8)
    curves = _finetune(_model(task), task, epochs=4, lr=0.01, milestones=(1, 3)).curves
    assert [row["lr"] for row in curves] == pytest.approx([0.01, 0.001, 0.001, 0.0001])


def test_a_killed_training_goes_on_to_the_same_weights(wave_task: TaskBuilder, tmp_path: Path) -> None:
    task = wave_task(8)
    whole, killed = _model(task), _model(task)
    records = Records(resume=tmp_path / "state.pt", fingerprint="x")
    _finetune(whole, task, epochs=3, milestones=(1,))
    _finetune(killed, task, epochs=2, milestones=(1,), records=records)
    resumed = _model(task)
    result = _finetune(resumed, task, epochs=3, milestones=(1,), records=records)
    assert len(result.curves) == 3
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_a_loss_that_is_not_finite_stops_the_training(wave_task: TaskBuilder) -> None:
    task = wave_task(8)
    with pytest.raises(TrainingDivergedError, match="lower the learning rate"):
        _finetune(_model(task), task, epochs=3, lr=1e30)


def test_adam_and_sgd_are_those_of_the_paper() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    adam = Schedule(1, "adam", 0.1, 1e-4, ()).build_optimizer([parameter]).param_groups[0]
    sgd = Schedule(1, "sgd", 0.1, 1e-4, ()).build_optimizer([parameter]).param_groups[0]
    assert (adam["betas"], adam["weight_decay"]) == ((0.9, 0.999), 1e-4)
    assert (sgd["momentum"], sgd["nesterov"], sgd["weight_decay"]) == (0.9, True, 1e-4)
    with pytest.raises(ValueError, match="expected sgd or adam"):
        Schedule(1, "lamb", 0.1, 0.0, ()).build_optimizer([parameter])
