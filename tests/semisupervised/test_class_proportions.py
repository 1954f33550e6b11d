from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy.optimize import minimize

from histo_monai.data.tables.tasks import split_rows
from histo_monai.finetuning.class_offsets import log_odds_to
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.semisupervised.settings import MixedTeacherSettings
from histo_monai.semisupervised.teaching.class_proportions import (
    class_proportions,
    match_class_proportions,
)
from histo_monai.training.prediction import predict, take_statistics
from histo_monai.training.schedule import Schedule
from tests.students import statistics_of, taught
from tests.waves import SIDE, WaveTask

TaskBuilder = Callable[..., WaveTask]


def _model(task: WaveTask, head: str = "linear") -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(build_encoder("test_resnet", SIDE), head, task.num_outputs)


def test_of_two_patches_and_two_classes_the_change_is_known() -> None:
    """Log odds of 2 and -2 about 0: at a change of c the mean proportion is (s(2 + c) + s(c - 2)) / 2."""
    logits = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    change = 1.5
    proportion = (1 / (1 + math.exp(-2 - change)) + 1 / (1 + math.exp(2 - change))) / 2
    found = log_odds_to(logits, torch.tensor([proportion, 1 - proportion], dtype=torch.float64))
    assert float(found[0] - found[1]) == pytest.approx(change, abs=1e-4)
    assert float(found.sum()) == pytest.approx(0, abs=1e-12)


def test_the_change_is_where_a_general_optimizer_finds_it() -> None:
    """Proportions are right where sum(logsumexp) - n proportions . change, which is convex, is least."""
    random = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(200, 5, generator=random, dtype=torch.float64)
    proportions = torch.tensor([0.5, 0.3, 0.1, 0.08, 0.02], dtype=torch.float64)

    def convex(change: list[float]) -> float:
        x = torch.as_tensor(change, dtype=torch.float64)
        return float((logits + x).logsumexp(dim=1).mean() - proportions @ x)

    truth = torch.as_tensor(minimize(convex, torch.zeros(5).tolist(), method="BFGS", tol=1e-9).x)
    found = log_odds_to(logits, proportions)
    torch.testing.assert_close(found, truth - truth.mean(), rtol=0, atol=1e-3)
    torch.testing.assert_close((logits + found).softmax(dim=1).mean(dim=0), proportions, rtol=0, atol=1e-6)


def test_a_class_of_no_patch_ends_with_next_to_none() -> None:
    logits = torch.zeros(4, 2, dtype=torch.float64)
    found = logits + log_odds_to(logits, torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert found.isfinite().all()
    assert float(found.softmax(dim=1)[:, 1].max()) < 1e-5


@pytest.mark.parametrize("head", ["linear", "pair"])
@pytest.mark.parametrize("scores", [False, True])
def test_proportions_are_as_given_and_patches_stay_in_their_order(
    wave_task: TaskBuilder, scores: bool, head: str
) -> None:
    task = wave_task(16, scores=scores)
    model = _model(task, head)
    with torch.no_grad():
        model.head.linear.bias.fill_(0.5)
    patches = task.in_order(split_rows(task.patches, "train"), 8)
    before = predict(model, task, patches.loader)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    wanted = class_proportions(model, task, patches)
    if scores:  # a third wider, and more
        wanted = wanted * torch.tensor([1.1, 4 / 3]).double()
    else:
        wanted = torch.linspace(1, 2, len(wanted)).double()
        wanted /= wanted.sum()
    match_class_proportions(model, task, patches, wanted)
    torch.testing.assert_close(class_proportions(model, task, patches), wanted, rtol=0, atol=1e-5)
    after = predict(model, task, patches.loader)
    if scores:
        middle, widened = before - before.mean(), after - wanted[0]
        torch.testing.assert_close(widened.float(), 4 / 3 * middle, rtol=0, atol=1e-5)
    else:  # who is likelier the first class than the last
        odds = [(x[:, 0] / x[:, -1]).argsort(stable=True) for x in (before, after)]
        assert torch.equal(*odds)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, state[name])}
    assert changed == {"head.linear.bias", *["head.linear.weight"] * scores}


def _student(task: WaveTask, model: TaskModel, **finish: Any) -> TaskModel:
    """A student of a mixed teacher."""
    settings = MixedTeacherSettings(weight=1.0, temperature=0.5, beta=0.75, momentum=1.0, spread_momentum=1.0)
    schedule = Schedule(epochs=1, optimizer="sgd", lr=0.05, weight_decay=0.0, milestones=())
    return taught(task, model, "mixed_teacher", settings, schedule=schedule, **finish)[1]


@pytest.mark.parametrize("keeps", [False, True])
def test_a_student_ends_with_the_class_proportions_that_it_began_with(
    wave_task: TaskBuilder, keeps: bool
) -> None:
    task = wave_task(16)
    model = _model(task)
    statistics = statistics_of(task)
    first = class_proportions(model, task, statistics)
    student = _student(task, model, proportions=first if keeps else None)
    apart = float((class_proportions(student, task, statistics) - first).abs().max())
    assert (apart < 1e-5) == keeps


def test_a_student_that_is_drawn_back_is_between_its_start_and_where_it_came(wave_task: TaskBuilder) -> None:
    task = wave_task(16)
    start = _model(task)
    far, near = (_student(task, start, interpolation_weights=(weight,)) for weight in (0.0, 0.25))
    own, ends = dict(near.named_parameters()), (dict(start.named_parameters()), dict(far.named_parameters()))
    assert not torch.equal(*(end["head.linear.weight"] for end in ends))
    for name, value in own.items():
        torch.testing.assert_close(value, 0.25 * ends[0][name] + 0.75 * ends[1][name])
    held = {name: value.clone() for name, value in near.named_buffers()}
    take_statistics(near, task, statistics_of(task))  # as they were taken already, of the weights between
    for name, value in near.named_buffers():
        torch.testing.assert_close(value, held[name])
