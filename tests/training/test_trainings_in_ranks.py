"""Fine-tuning and students in two processes: what one process does, whatever the method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ignite.distributed as idist
import numpy as np
import pytest
import torch

from histo_monai.data.loaders import labeled as labeled_loaders
from histo_monai.data.loaders.batches import ShuffledBatches
from histo_monai.data.loaders.streams import for_statistics, shuffled, two_streams
from histo_monai.data.tables.tasks import split_rows
from histo_monai.finetuning.trainer import Tuning, finetune
from histo_monai.models.encoder import build_encoder
from histo_monai.models.shared_rows import SharedRows, rows_of_rank
from histo_monai.models.task_model import TaskModel
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.teaching.class_proportions import class_proportions
from histo_monai.semisupervised.teaching.trainer import train_student
from histo_monai.training.fit import Records
from histo_monai.training.schedule import Schedule
from histo_monai.utils.errors import InputError
from tests.ranks import in_two_ranks
from tests.training.test_steps_on_devices import CPU, PARAMS, student_step
from tests.waves import SIDE, Waves, WaveTask, wave_table

ALL_WAYS = ("paper", "adamatch", "mean_teacher", "mixed_teacher", "mixmatch", "rankup")
"""One of each way in which a method calls its networks; the other students call theirs as adamatch does."""

SCHEDULE = Schedule(2, "sgd", 0.01, 1e-4, (), steps_per_epoch=2)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5])
def test_rows_of_ranks_are_those_of_numpy(num_ranks: int) -> None:
    for num in range(12):
        expected = np.array_split(np.arange(num), num_ranks)
        for rank in range(num_ranks):
            assert np.arange(num)[rows_of_rank(rank, num_ranks, num)].tolist() == expected[rank].tolist()


def test_ranks_read_parts_of_the_same_batches() -> None:
    def of(rank: int, num_ranks: int) -> list[list[int]]:
        return list(
            ShuffledBatches(10, 6, num_batches=4, seed=3, purpose="labeled", rank=rank, world_size=num_ranks)
        )

    parts = zip(of(0, 3), of(1, 3), of(2, 3), strict=True)
    assert [[row for part in batch for row in part] for batch in parts] == of(0, 1)


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"batch_size: 6 does not divide among 4 processes\. Fix: make it a multiple"
    ):
        ShuffledBatches(10, 6, seed=0, purpose="labeled", world_size=4)


def _steps(device: torch.device, folder: str) -> None:
    torch.set_num_threads(1)
    found = {name: student_step(name, CPU, torch.float64, "test_resnet") for name in ALL_WAYS}
    torch.save(found, f"{folder}/steps-{idist.get_rank()}.pt")


@pytest.mark.slow
def test_a_step_of_a_student_has_loss_and_gradients_of_one_process(tmp_path: Path) -> None:
    """In float64, where only the order of sums differs."""
    in_two_ranks(_steps, str(tmp_path))
    of_ranks = [torch.load(tmp_path / f"steps-{rank}.pt") for rank in range(2)]
    for name in ALL_WAYS:
        loss, gradients = student_step(name, CPU, torch.float64, "test_resnet")
        assert float(gradients.norm()) > 0
        for found in of_ranks:
            assert found[name][0] == pytest.approx(loss, rel=1e-9), name
            torch.testing.assert_close(found[name][1], gradients, rtol=1e-6, atol=1e-9)
        assert torch.equal(of_ranks[0][name][1], of_ranks[1][name][1])


def _nothing(*shown: Any) -> np.ndarray:
    return np.zeros((2, 2, 3), np.uint8)


def _trainings() -> dict[str, Any]:
    """A fine-tuning and a student from it: with statistics, class proportions restored, uneven validation batches."""
    task = WaveTask(wave_table(24, scores=False))
    train, validation = (split_rows(task.patches, split) for split in ("train", "validation"))
    shared = {"rank": idist.get_rank(), "world_size": idist.get_world_size()}
    torch.manual_seed(0)
    model = TaskModel(build_encoder("test_resnet", SIDE), "pair", task.num_outputs).double()
    statistics = for_statistics(task.reading, train, 9, 5, seed=0)
    measured = task.reading.in_order(validation, len(validation) - 1, **shared)
    finetuned = finetune(
        model,
        task,
        shuffled(task.reading, train.head(6), 4, seed=0, purpose="labeled", num_batches=2),
        measured,
        schedule=SCHEDULE,
        seed=0,
        picture=_nothing,
        records=Records(),
        tuning=Tuning(backbone_lr_factor=0.5, unaugmented_fraction=0.3, ema_decay=0.5),
        statistics=statistics,
    )
    after = {name: value.clone() for name, value in model.state_dict().items()}
    method = METHODS["mixed_teacher"](
        model=model,
        objective=task.objective,
        patch_px=task.patch_px,
        mpp=None,
        n_aug=7,
        recipe=PARAMS.student_recipe("mixed_teacher", "two_classes"),
        settings=PARAMS.consistency.methods["mixed_teacher"],
    )
    labeled, unlabeled = two_streams(task.reading, train.head(6), train, 4, mu=2, seed=0, num_batches=2)
    student = train_student(
        method,
        task,
        labeled,
        unlabeled,
        measured,
        schedule=SCHEDULE,
        seed=0,
        picture=_nothing,
        records=Records(),
        statistics=statistics,
        proportions=class_proportions(model, task, statistics),
        interpolation_weights=(0.0, 0.5, 1.0),
    )
    return {
        "curves": [finetuned.curves, student.curves],
        "validation": [finetuned.validation, student.validation],
        "states": [after, dict(model.state_dict())],
    }


def _train_in_rank(device: torch.device, folder: str) -> None:
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labeled_loaders, "LabeledPatches", Waves)
        torch.save(_trainings(), f"{folder}/rank-{idist.get_rank()}.pt")


def test_two_processes_train_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_two_ranks(_train_in_rank, str(tmp_path))
    monkeypatch.setattr(labeled_loaders, "LabeledPatches", Waves)
    alone = _trainings()
    ranks = [torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(2)]
    for found in ranks:
        for rows, wanted in zip(found["curves"], alone["curves"], strict=True):
            assert len(rows) == len(wanted) == 2
            for row, want in zip(rows, wanted, strict=True):
                assert row == pytest.approx(want, rel=1e-3, abs=1e-4)
        for values, wanted in zip(found["validation"], alone["validation"], strict=True):
            assert values == pytest.approx(wanted, rel=1e-3, abs=1e-4)
        for state, wanted in zip(found["states"], alone["states"], strict=True):
            assert state.keys() == wanted.keys()
            for name, value in wanted.items():
                torch.testing.assert_close(state[name], value, rtol=1e-3, atol=1e-4, msg=name)
    for state, other in zip(*(found["states"] for found in ranks), strict=True):
        assert all(torch.equal(value, other[name]) for name, value in state.items())


def test_one_process_is_left_as_it_is() -> None:
    model = TaskModel(build_encoder(), "linear", 2)
    kinds = [type(module) for module in model.modules()]
    shared = SharedRows(model, CPU)
    rows = torch.arange(4)
    assert shared.all_rows(rows) is rows
    with shared.divided():
        assert not model.encoder._forward_hooks
        assert not model.encoder._forward_pre_hooks
    assert kinds == [type(module) for module in model.modules()]
