from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

from histo_monai.data.tables.tasks import split_rows
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.semisupervised.teaching.trainer import StudentResult
from histo_monai.training.evaluator import build_evaluator
from histo_monai.training.interpolation import Interpolation, interpolate, lowest, pooled
from histo_monai.training.schedule import Schedule
from tests.students import taught
from tests.waves import WaveTask

TaskBuilder = Callable[..., WaveTask]


def _by_loss(measures: dict[str, float]) -> tuple[float, ...]:
    return (measures["loss"],)


def _point(weight: float) -> nn.Linear:
    network = nn.Linear(1, 1)
    network.weight.data.fill_(weight)
    network.bias.data.zero_()
    return network


def _select(wanted: float, start_weights: Sequence[float]) -> tuple[nn.Linear, float, list[float]]:
    """The student of weight 1 that came from 0, where the loss is the square of what it is off."""
    student, finished = _point(1.0), []

    def finish() -> None:
        finished.append(student.weight.item())
        student.bias.data += 1

    def measure() -> dict[str, float]:
        return {"loss": (student.weight.item() - wanted) ** 2}

    line = Interpolation(student, _point(0.0), finish)
    measured = line.select(start_weights, measure, _by_loss)
    assert list(measured) == list(start_weights)
    assert measured[line.start_weight] == measure()  # of the weights that are selected
    return student, line.start_weight, finished


@pytest.mark.parametrize(
    ("wanted", "start_weight", "weight"),
    [(0.7, 0.25, 0.75), (0.6, 0.5, 0.5), (-1.0, 1.0, 0.0), (2.0, 0.0, 1.0)],
)
def test_the_point_that_loses_least_is_selected(wanted: float, start_weight: float, weight: float) -> None:
    student, selected, finished = _select(wanted, (0.0, 0.25, 0.5, 1.0))
    assert selected == start_weight
    assert student.weight.item() == weight
    assert finished[:3] == [1.0, 0.75, 0.5]  # each from the last student, not from the point before
    assert student.bias.item() == (0.0 if start_weight == 1 else 1.0)  # finished once; start unchanged


def test_of_equal_points_the_first_is_selected() -> None:
    assert _select(0.5, (0.25, 0.75))[1] == 0.25
    assert _select(0.5, (0.75, 0.25))[1] == 0.75


def test_a_point_whose_loss_is_no_number_is_not_selected() -> None:
    student = _point(1.0)

    def measure() -> dict[str, float]:
        return {"loss": student.weight.item() if student.weight.item() < 1 else float("nan")}

    line = Interpolation(student, _point(0.0), lambda: None)
    line.select((0.0, 0.5), measure, _by_loss)
    assert line.start_weight == 0.5


def test_statistics_stay_where_weights_are_interpolated() -> None:
    own, start = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    own.weight.data.fill_(3.0)
    own.running_mean = torch.tensor([5.0, 6.0])
    interpolate(own, start, 0.25)
    torch.testing.assert_close(own.weight.data, torch.full((2,), 2.5))
    torch.testing.assert_close(own.running_mean, torch.tensor([5.0, 6.0]))


def test_means_of_folds_count_each_held_out_patch_once() -> None:
    folds = [({0.0: {"loss": 1.0}, 1.0: {"loss": 4.0}}, 3), ({0.0: {"loss": 5.0}, 1.0: {"loss": 0.0}}, 1)]
    assert pooled(folds) == {0.0: {"loss": 2.0}, 1.0: {"loss": 3.0}}
    assert lowest(pooled(folds), _by_loss) == 0.0


def _student(task: WaveTask, lr: float, epochs: int = 2) -> tuple[StudentResult, TaskModel, TaskModel]:
    """What a student's training leaves, its model, and the start."""
    torch.manual_seed(0)
    start = TaskModel(build_encoder(), "pair", task.num_outputs)
    schedule = Schedule(epochs=epochs, optimizer="sgd", lr=lr, weight_decay=0.0, milestones=())
    result, model = taught(
        task, start, "supervised", schedule=schedule, interpolation_weights=(0.0, 0.5, 1.0)
    )
    return result, model, start


def test_a_student_that_harms_is_not_selected(wave_task: TaskBuilder) -> None:
    result, model, start = _student(wave_task(16), lr=0.3)
    assert result.selected == 1.0
    for name, value in start.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name


@pytest.mark.learns
def test_what_is_selected_never_ranks_below_the_start_in_validation(wave_task: TaskBuilder) -> None:
    task = wave_task(16)
    result, model, start = _student(task, lr=0.005, epochs=16)  # for eight, the loss is that of chance
    assert result.selected < 1.0
    validation = task.in_order(split_rows(task.patches, "validation"), 16)
    ranks = []
    for network in (start, model):
        evaluator = build_evaluator(network.eval(), task, validation.targets)
        evaluator.run(validation.loader)
        ranks.append(task.objective.rank(evaluator.state.metrics))
    assert ranks[1] < ranks[0]
    assert ranks[1] == task.objective.rank(result.validation)  # of the weights that are selected
