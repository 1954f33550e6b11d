from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Engine

from histo_monai.data.loaders.labeled import HiddenLabels
from histo_monai.data.loaders.streams import two_streams
from histo_monai.data.tables.tasks import split_rows
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.models.teacher_student import TeacherStudent
from histo_monai.semisupervised.paper import Paper
from histo_monai.semisupervised.protocol import Batch
from histo_monai.semisupervised.settings import PaperSettings
from histo_monai.semisupervised.teaching import trainer as engine_module
from histo_monai.semisupervised.teaching.trainer import StudentResult, StudentStep, train_student
from histo_monai.training.fit import Records
from histo_monai.training.schedule import Schedule
from histo_monai.transforms.supervised import SupervisedAugmentation
from histo_monai.utils.randomness import Step
from tests.event_files import read_events, scalars
from tests.recipes import RECIPE, STRONG_VALUES
from tests.waves import SIDE, WaveTask

TaskBuilder = Callable[..., WaveTask]
B, MU, STEPS = 4, 2, 3
SCHEDULE = Schedule(epochs=2, optimizer="sgd", lr=0.05, weight_decay=1e-4, milestones=(1,))


def _paper(task: WaveTask, weight: float = 1.0, n_aug: int = 7) -> Paper:
    torch.manual_seed(0)
    return Paper(
        model=TaskModel(build_encoder("test_resnet", SIDE), "pair", task.num_outputs),
        objective=task.objective,
        patch_px=task.patch_px,
        mpp=None,
        n_aug=n_aug,
        recipe=RECIPE,
        settings=PaperSettings(weight, threshold=0.0, keep="last", strong=STRONG_VALUES),
    )


def _labeled(task: WaveTask) -> Any:
    rows = split_rows(task.patches, "train").head(6)
    return task.shuffled(rows, B, seed=0, purpose="labeled", num_batches=STEPS)


def _train(
    method: Paper,
    task: WaveTask,
    schedule: Schedule = SCHEDULE,
    records: Records | None = None,
    hidden: HiddenLabels | None = None,
) -> StudentResult:
    """An epoch of STEPS: 24 unlabeled patches in batches of eight, six labeled ones in batches of four."""
    train = split_rows(task.patches, "train")
    labeled, unlabeled = two_streams(task.reading, train.head(6), train, B, mu=MU, seed=0)
    return train_student(
        method,
        task,
        labeled,
        unlabeled,
        task.in_order(split_rows(task.patches, "validation"), 16),
        schedule=schedule,
        seed=0,
        picture=lambda *shown: np.zeros((2, 2, 3), np.uint8),
        records=records or Records(),
        hidden=hidden,
    )


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def _equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("scores", [False, True])
def test_the_trunk_stays_and_the_teacher_moves_only_at_the_end_of_an_epoch(
    wave_task: TaskBuilder, scores: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = wave_task(scores=scores)
    method = _paper(task)
    pair = method.network
    trunk, teacher, student = _state(pair.encoder), _state(pair.teacher), _state(pair.student)
    seen: list[bool] = []
    step = StudentStep.__call__

    def watched(self: StudentStep, engine: Engine, batch: Any) -> dict[str, torch.Tensor]:
        output = step(self, engine, batch)
        if engine.state.epoch == 1:
            seen.append(_equal(_state(pair.teacher), teacher))
        return output

    monkeypatch.setattr(StudentStep, "__call__", watched)
    _train(method, task)
    assert seen == [True] * STEPS
    assert any(name.endswith("running_mean") for name in trunk)
    assert _equal(_state(pair.encoder), trunk)
    assert not _equal(_state(pair.student), student)
    assert _equal(_state(pair.teacher), _state(pair.student))


def test_the_student_of_an_epoch_teaches_the_next(
    wave_task: TaskBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = wave_task()
    method = _paper(task)
    pair = method.network
    at_the_end: list[dict[str, torch.Tensor]] = []
    in_the_next: list[dict[str, torch.Tensor]] = []
    step = StudentStep.__call__

    def watched(self: StudentStep, engine: Engine, batch: Any) -> dict[str, torch.Tensor]:
        in_the_next.append(_state(pair.teacher))
        output = step(self, engine, batch)
        if engine.state.iteration % STEPS == 0:
            at_the_end.append(_state(pair.student))
        return output

    monkeypatch.setattr(StudentStep, "__call__", watched)
    _train(method, task)
    assert all(_equal(teacher, at_the_end[0]) for teacher in in_the_next[STEPS:])
    assert not _equal(at_the_end[0], at_the_end[1])


def _ids_seen(task: WaveTask, monkeypatch: pytest.MonkeyPatch, shuffle: bool) -> list[tuple[Any, Any]]:
    """Ids of the weak and the strong views that the trunk is given in each step: every image is a plain gray, its id.

    Only geometry is left in the strong views, which keeps a plain image as it is.
    """
    seen: list[tuple[Any, Any]] = []
    draw, features = Paper.views, TeacherStudent.features

    def plain(self: Paper, batch: Batch) -> tuple[torch.Tensor, ...]:
        ids = 3 * torch.arange(len(batch.unlabeled), dtype=torch.uint8) + batch.step.iteration
        images = ids.view(-1, 1, 1, 1, 1).expand_as(batch.unlabeled).contiguous()
        views, weak, strong = draw(self, dataclasses.replace(batch, unlabeled=images))
        if shuffle:
            strong = strong[torch.randperm(len(strong), generator=torch.Generator().manual_seed(0))]
        return views, weak, strong

    def watched(self: TeacherStudent, patches: torch.Tensor) -> torch.Tensor:
        if len(patches) == B + 2 * MU * B:
            ids = (patches.mean(dim=(1, 2, 3)) * 255).round().int().tolist()
            seen.append((ids[B : B + MU * B], ids[B + MU * B :]))
        return features(self, patches)

    monkeypatch.setattr(Paper, "views", plain)
    monkeypatch.setattr(TeacherStudent, "features", watched)
    monkeypatch.setattr(engine_module, "NUM_SHOWN", 1)
    monkeypatch.setattr(
        "histo_monai.transforms.randaugment.random_distinct_schedule",
        lambda state, num, kinds, count: np.stack([state.permutation(count) for _ in range(num)]),
    )
    _train(_paper(task, n_aug=4), task)
    return seen


def test_weak_and_strong_views_of_a_step_are_of_the_same_images(
    wave_task: TaskBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _ids_seen(wave_task(), monkeypatch, shuffle=False)
    assert len(seen) == STEPS * SCHEDULE.epochs
    assert all(weak == strong and len(set(weak)) == MU * B for weak, strong in seen)


def test_shuffled_pairs_would_be_noticed(wave_task: TaskBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert any(weak != strong for weak, strong in _ids_seen(wave_task(), monkeypatch, shuffle=True))


@pytest.mark.parametrize("scores", [False, True])
def test_with_lambda_zero_the_student_is_finetuning_of_the_head(wave_task: TaskBuilder, scores: bool) -> None:
    task = wave_task(scores=scores)
    method = _paper(task, weight=0.0)
    model = copy.deepcopy(method.model).eval()
    _train(method, task)

    head = model.head
    optimizer = torch.optim.SGD(head.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    augment, loader = SupervisedAugmentation(task.patch_px), _labeled(task)
    iteration = 0
    for epoch in (1, 2):
        optimizer.param_groups[0]["lr"] = {1: 0.05, 2: 0.005}[epoch]
        loader.loader.batch_sampler.set_epoch(epoch)
        for patches, rows in loader.loader:
            iteration += 1
            augment.set_random_state(Step(0, epoch, iteration).derive_seed("augmentation"))
            with torch.no_grad():
                features = model.encoder(augment(patches).squeeze(1))
            loss = task.objective.measure(head(features), loader.targets[rows])["loss"].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for name, value in head.state_dict().items():
        torch.testing.assert_close(method.model.head.state_dict()[name], value, rtol=1e-5, atol=1e-7)


def test_the_unlabeled_part_moves_the_student(wave_task: TaskBuilder) -> None:
    task = wave_task()
    with_it, without = _paper(task), _paper(task, weight=0.0)
    _train(with_it, task)
    _train(without, task)
    assert not _equal(_state(with_it.model.head), _state(without.model.head))


def _half(head: torch.nn.Module, features: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    """Half of the features, at random, in training: the encoder of this method does not train."""
    return (torch.nn.functional.dropout(features[0], 0.5, training=head.training),)


def test_a_killed_training_goes_on_to_the_same_student(wave_task: TaskBuilder, tmp_path: Path) -> None:
    task = wave_task()
    whole, killed, resumed = (_paper(task) for _ in range(3))
    for method in (whole, killed, resumed):
        method.network.student.register_forward_pre_hook(_half)
    records = Records(resume=tmp_path / "state.pt", fingerprint="x")
    _train(whole, task)
    _train(killed, task, schedule=Schedule(1, "sgd", 0.05, 1e-4, (1,)), records=records)
    _train(resumed, task, records=records)
    assert _equal(_state(whole.network), _state(resumed.network))


def test_curves_and_tensorboard_hold_both_losses_and_the_pseudo_labels(
    wave_task: TaskBuilder, tmp_path: Path
) -> None:
    task = wave_task()
    records = Records(tensorboard=tmp_path / "events")
    result = _train(_paper(task), task, records=records, hidden=_hidden(task))
    columns = {
        "train_loss", "train_supervised", "train_consistency", "train_accuracy", "train_teacher_accuracy",
        "train_agreement", "train_teacher_entropy", "train_student_entropy", "validation_accuracy",
        "train_pseudo_label_accuracy", "train_used_pseudo_label_accuracy",
    }  # fmt: skip
    assert columns <= set(result.curves[-1])
    points = scalars(tmp_path / "events")
    for column in columns:
        part, _, measure = column.partition("_")
        values = [value for _, value in points[f"{measure}/{part}"]]
        assert values == pytest.approx([row[column] for row in result.curves], rel=1e-5), column
    assert len(read_events(tmp_path / "events").Images("pictures/pairs")) == SCHEDULE.epochs


def test_every_image_is_in_every_epoch(wave_task: TaskBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    task = wave_task()
    seen: dict[str, set[int]] = {"labeled": set(), "unlabeled": set()}
    step = StudentStep.__call__

    def watched(self: StudentStep, engine: Engine, batch: Any) -> dict[str, torch.Tensor]:
        if engine.state.epoch == 1:
            for name, (_, rows) in zip(seen, batch, strict=True):
                seen[name] |= set(rows.tolist())
        return step(self, engine, batch)

    monkeypatch.setattr(StudentStep, "__call__", watched)
    _train(_paper(task), task)
    assert seen == {"labeled": set(range(6)), "unlabeled": set(range(24))}


def _hidden(task: WaveTask) -> HiddenLabels:
    train = split_rows(task.patches, "train")
    return HiddenLabels.of(train, train.head(6), task.classes)


@pytest.mark.parametrize("scores", [False, True])
def test_hidden_labels_are_those_that_are_known_and_not_given(wave_task: TaskBuilder, scores: bool) -> None:
    task = wave_task(scores=scores)
    train = split_rows(task.patches, "train")
    train.loc[10, ["label", "score"]] = ["", np.nan]
    hidden = HiddenLabels.of(train, train.head(6), task.classes)
    assert hidden.known.tolist() == [row >= 6 and row != 10 for row in range(24)]
    for row in np.flatnonzero(hidden.known):
        label = train["score"][row] if scores else task.classes.index(train["label"][row])
        assert float(hidden.targets[row]) == pytest.approx(label)


@pytest.mark.parametrize("scores", [False, True])
def test_the_student_does_not_depend_on_the_hidden_labels(wave_task: TaskBuilder, scores: bool) -> None:
    task = wave_task(scores=scores)
    true = _hidden(task)
    wrong = dataclasses.replace(true, targets=torch.zeros_like(true.targets))
    states, qualities = [], []
    for hidden in (None, true, wrong):
        method = _paper(task)
        curves = _train(method, task, hidden=hidden).curves
        states.append(_state(method.network))
        qualities.append([row.get(f"train_{task.objective.PSEUDO_LABEL_MEASURE}") for row in curves])
    assert _equal(states[0], states[1])
    assert _equal(states[0], states[2])
    assert qualities[0] == [None, None]
    assert qualities[1] != qualities[2]


@pytest.mark.parametrize("scores", [False, True])
def test_pseudo_labels_are_compared_with_the_hidden_labels(
    wave_task: TaskBuilder, monkeypatch: pytest.MonkeyPatch, scores: bool
) -> None:
    """Truth: what the teacher says of each weak view, row by row, against the table."""
    task = wave_task(scores=scores)
    method, train = _paper(task), split_rows(task.patches, "train")
    method.settings = dataclasses.replace(method.settings, threshold=0.0 if scores else 0.5001)
    of_epoch: dict[int, list[tuple[float, bool]]] = {1: [], 2: []}
    step, measure, seen = StudentStep.__call__, Paper.measure, []

    def remember(self: Paper, outputs: Any, batch: Batch) -> dict[str, torch.Tensor]:
        seen.append(outputs[1][B:])
        return measure(self, outputs, batch)

    def watched(self: StudentStep, engine: Engine, pair: Any) -> Any:
        result = step(self, engine, pair)
        for row, output in zip(pair[1][1].tolist(), seen.pop(), strict=True):
            if row < 6:
                continue
            if scores:
                value = abs(min(max(float(output), 0.0), 1.0) - train["score"][row])
            else:
                value = float(task.classes[int(output.argmax())] == train["label"][row])
            is_used = scores or float(output.float().softmax(0).max()) >= 0.5001
            of_epoch[engine.state.epoch].append((value, is_used))
        return result

    monkeypatch.setattr(Paper, "measure", remember)
    monkeypatch.setattr(StudentStep, "__call__", watched)
    curves = _train(method, task, hidden=_hidden(task)).curves
    name = task.objective.PSEUDO_LABEL_MEASURE
    for row in curves:
        found = of_epoch[int(row["epoch"])]
        assert row[f"train_{name}"] == pytest.approx(np.mean([value for value, _ in found]), abs=1e-6)
        if scores:
            assert f"train_used_{name}" not in row
        else:
            used = [value for value, is_used in found if is_used]
            assert row[f"train_used_{name}"] == pytest.approx(np.mean(used), abs=1e-6)


def test_a_run_without_hidden_labels_has_no_measure_of_pseudo_labels(wave_task: TaskBuilder) -> None:
    task = wave_task()
    train = split_rows(task.patches, "train")
    hidden = HiddenLabels.of(train, train, task.classes)
    assert not any(
        "pseudo_label" in column for column in _train(_paper(task), task, hidden=hidden).curves[-1]
    )
