from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from histo_monai.data.tables.tasks import split_rows
from histo_monai.finetuning.trainer import FinetuneResult, Tuning, finetune
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.training.fit import Records
from histo_monai.training.handlers import TrainingDivergedError
from histo_monai.training.prediction import predict, take_statistics
from histo_monai.training.resume import ResumePoint
from histo_monai.training.schedule import Schedule
from tests.waves import SIDE, WaveTask, drop_features

TaskBuilder = Callable[..., WaveTask]


def _model(task: WaveTask, encoder: str = "test_resnet") -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(build_encoder(encoder, SIDE), "pair", task.num_outputs)


def _finetune(model: TaskModel, task: WaveTask, **changes: Any) -> FinetuneResult:
    parts = {"records": Records(), "tuning": Tuning(), "statistics": None}
    parts = {name: changes.pop(name, part) for name, part in parts.items()}
    settings = {"epochs": 2, "optimizer": "sgd", "lr": 0.01, "weight_decay": 1e-4, "milestones": ()}
    return finetune(
        model,
        task,
        task.shuffled(split_rows(task.patches, "train"), 8, seed=0, purpose="labeled"),
        task.in_order(split_rows(task.patches, "validation"), 16),
        schedule=Schedule(**{**settings, **changes}),
        seed=0,
        picture=lambda patches, predicted, targets: np.zeros((2, 2, 3), np.uint8),
        **parts,
    )


@pytest.mark.slow
@pytest.mark.learns
@pytest.mark.parametrize("scores", [False, True])
def test_finetuning_learns_a_visible_class(wave_task: TaskBuilder, scores: bool) -> None:
    task = wave_task(48, scores)
    model = _model(task, "resnet18")
    _finetune(model, task, epochs=12, optimizer="adam", lr=1e-3)
    test = task.in_order(split_rows(task.patches, "test"), 16)
    predictions = predict(model, task, test.loader)
    if scores:
        assert float(np.corrcoef(predictions[:, 0], test.targets)[0, 1]) > 0.8
    else:
        assert float(task.objective.right(predictions, test.targets).mean()) > 0.9


def test_the_selected_weights_are_those_of_the_best_epoch(wave_task: TaskBuilder) -> None:
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
    whole, killed, resumed = (_model(task) for _ in range(3))
    for model in (whole, killed, resumed):
        drop_features(model)
    records = Records(resume=tmp_path / "state.pt", fingerprint="x")
    _finetune(whole, task, epochs=3, milestones=(1,))
    _finetune(killed, task, epochs=2, milestones=(1,), records=records)
    result = _finetune(resumed, task, epochs=3, milestones=(1,), records=records)
    assert len(result.curves) == 3
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


RECIPE = {"epochs": 3, "optimizer": "adamw", "warmup": 0.1}
TUNING = Tuning(backbone_lr_factor=0.1, unaugmented_fraction=0.5, ema_decay=0.5)


def test_a_training_by_a_recipe_that_is_killed_goes_on_to_the_same_weights(
    wave_task: TaskBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = wave_task(8)
    whole, killed, resumed = _model(task), _model(task), _model(task)
    records = Records(resume=tmp_path / "state.pt", fingerprint="x")
    _finetune(whole, task, **RECIPE, tuning=TUNING)
    save, saved = ResumePoint.save, list[int]()

    def save_and_end(point: ResumePoint, engine: Any) -> None:
        save(point, engine)
        saved.append(engine.state.epoch)
        if engine.state.epoch == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ResumePoint, "save", save_and_end)
    with pytest.raises(KeyboardInterrupt):
        _finetune(killed, task, **RECIPE, tuning=TUNING, records=records)
    monkeypatch.setattr(ResumePoint, "save", save)
    assert saved == [1, 2]
    result = _finetune(resumed, task, **RECIPE, tuning=TUNING, records=records)
    assert (len(result.curves), result.best_epoch) == (3, 3)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_statistics_taken_at_the_end_leave_the_weights_and_are_what_is_measured(
    wave_task: TaskBuilder,
) -> None:
    task = wave_task(16)
    kept, settled = _model(task), _model(task)
    before = _finetune(kept, task, **RECIPE, tuning=TUNING)
    plain = task.shuffled(split_rows(task.patches, "train"), 8, seed=0, purpose="statistics")
    after = _finetune(settled, task, **RECIPE, tuning=TUNING, statistics=plain)
    differ = {
        name
        for name, value in kept.state_dict().items()
        if not torch.equal(value, settled.state_dict()[name])
    }
    assert differ
    assert all(name.endswith(("running_mean", "running_var", "num_batches_tracked")) for name in differ)
    assert before.curves == after.curves
    assert before.validation != after.validation
    take_statistics(kept, task, plain)
    for name, value in kept.state_dict().items():
        assert torch.equal(value, settled.state_dict()[name]), name


def test_the_saved_model_is_the_average_of_all_steps(
    wave_task: TaskBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = wave_task(16)
    model, seen = _model(task), list[dict[str, torch.Tensor]]()
    step = torch.optim.AdamW.step

    def note(optimizer: torch.optim.AdamW, *arguments: Any) -> Any:
        result = step(optimizer, *arguments)
        seen.append({name: p.detach().double() for name, p in _student(optimizer).items()})
        return result

    def _student(optimizer: torch.optim.AdamW) -> dict[str, torch.Tensor]:
        names = [*(f"head.{n}" for n, _ in model.head.named_parameters())]
        return dict(zip(names, optimizer.param_groups[0]["params"], strict=True))

    expected = {name: p.detach().double().clone() for name, p in model.named_parameters() if "head" in name}
    monkeypatch.setattr(torch.optim.AdamW, "step", note)
    _finetune(model, task, optimizer="adamw", lr=1e-2, tuning=Tuning(backbone_lr_factor=0.5, ema_decay=0.7))
    assert len(seen) >= 4
    for number, weights in enumerate(seen, start=1):
        kept = min(0.7, 1 - 1 / (number + 1))
        for name, value in weights.items():
            expected[name] = kept * expected[name] + (1 - kept) * value
    for name, value in expected.items():
        torch.testing.assert_close(model.get_parameter(name).double(), value, rtol=1e-4, atol=1e-7)


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
    with pytest.raises(ValueError, match="expected sgd, adam or adamw"):
        Schedule(1, "lamb", 0.1, 0.0, ()).build_optimizer([parameter])
