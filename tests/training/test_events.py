from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Engine
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from histo_monai.training.events import Hyperparameters, write_end
from histo_monai.training.fit import Records, fit
from histo_monai.training.means import attach_means
from histo_monai.training.resume import ResumePoint
from tests.event_files import read_events, scalars, table_of_runs

STEPS, EPOCHS, SIDE = 12, 3, 4


class _Batches(list[torch.Tensor]):
    @property
    def batch_sampler(self) -> _Batches:
        return self

    def set_epoch(self, epoch: int) -> None:
        pass


def _train(records: Records) -> list[dict[str, float]]:
    """Losses that tell step and epoch apart; a picture."""
    network = torch.nn.Linear(1, 1)

    def measured(engine: Engine, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": batch + engine.state.epoch, "accuracy": batch / STEPS}

    engines = [Engine(measured) for _ in range(2)]
    for engine in engines:
        attach_means(engine, ("loss", "accuracy"))
    batches = _Batches([torch.full((2,), float(step)) for step in range(STEPS)])
    return fit(
        *engines,
        batches,
        batches,
        epochs=EPOCHS,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        parts={"network": network},
        best=None,
        rank=lambda means: (means["loss"],),
        pictures={"answers": lambda: np.full((SIDE, SIDE, 3), 7, np.uint8)},
        images_per_step=2,
        records=records,
    )


def test_each_measure_has_a_point_for_every_epoch_and_each_epoch_a_picture(tmp_path: Path) -> None:
    curves = _train(Records(tensorboard=tmp_path))
    points = scalars(tmp_path)
    measures = {f"{name}/{part}" for name in ("loss", "accuracy") for part in ("train", "validation")}
    assert set(points) == measures | {"loss/batch", "learning_rate/0", "images_per_second"}
    steps = [STEPS * epoch for epoch in (1, 2, 3)]
    for tag in measures:
        name, part = tag.split("/")
        assert dict(points[tag]) == pytest.approx(
            {step: row[f"{part}_{name}"] for step, row in zip(steps, curves, strict=True)}
        )
    # Losses of batches 10, 20 and 30, counted from 1 over all epochs of 12: 9 + 1, 7 + 2, 5 + 3.
    assert points["loss/batch"] == [(10, 10.0), (20, 9.0), (30, 8.0)]
    assert dict(points["learning_rate/0"]) == pytest.approx(dict.fromkeys(steps, 0.1))
    assert [step for step, rate in points["images_per_second"] if rate > 0] == steps
    pictures = read_events(tmp_path).Images("pictures/answers")
    assert [(picture.step, picture.width, picture.height) for picture in pictures] == [
        (step, SIDE, SIDE) for step in steps
    ]


def test_a_training_that_was_killed_and_went_on_has_one_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    _train(Records(tensorboard=whole))
    records = Records(killed, tmp_path / "state.pt", "x")
    save = ResumePoint.save

    def end_before_the_second(point: ResumePoint, engine: Any) -> None:
        if engine.state.epoch == 2:
            raise KeyboardInterrupt
        save(point, engine)

    monkeypatch.setattr(ResumePoint, "save", end_before_the_second)
    with pytest.raises(KeyboardInterrupt):
        _train(records)
    assert len(scalars(killed)["loss/train"]) == 2  # what the second epoch wrote is there, its state is not
    monkeypatch.setattr(ResumePoint, "save", save)
    second = int(time.time())
    while int(time.time()) == second:  # names of files begin with it: two of one second are read in any order
        time.sleep(0.01)
    _train(records)
    assert len(list(killed.iterdir())) == 2
    one, other = scalars(whole), scalars(killed)
    assert [step for step, _ in one.pop("images_per_second")] == [
        step for step, _ in other.pop("images_per_second")
    ]
    assert one == other
    assert len(read_events(killed).Images("pictures/answers")) == EPOCHS


def test_another_training_of_the_same_name_starts_an_empty_history(tmp_path: Path) -> None:
    for fingerprint in ("one", "other"):
        _train(Records(tmp_path / "events", tmp_path / "state.pt", fingerprint))
    assert len(list((tmp_path / "events").iterdir())) == 1
    assert len(scalars(tmp_path / "events")["loss/train"]) == EPOCHS


def test_the_table_of_runs_compares_trainings_of_all_stages(tmp_path: Path) -> None:
    pretraining = Hyperparameters("pretrain", "camelyon16", "vae", 0, 64, epochs=3, lr=3e-4)
    write_end(tmp_path / "pretrain/vae-0", pretraining, {"validation_loss": 0.5, "best_epoch": 2})
    student = Hyperparameters("consistency", "kather", "rsp", 1, 64, "paper", 2, 0.1, mu=3, n_aug=7)
    metrics = {"validation_loss": 0.25, "validation_accuracy": 0.75, "num_labeled": 60}
    folder = tmp_path / "consistency/rsp-1-paper-2"
    for _ in range(2):  # as where a stage is killed between this and its end
        write_end(folder, student, metrics)
    assert len(list(folder.iterdir())) == 1
    table = table_of_runs(tmp_path)
    assert set(table) == {"pretrain/vae-0", "consistency/rsp-1-paper-2"}
    row = table["pretrain/vae-0"]
    assert {name: value for name, value in row.hyperparameters.items() if value != ""} == {
        "stage": "pretrain", "dataset": "camelyon16", "method": "vae", "encoder": 0, "patch_px": 64, "epochs": 3,
        "lr": 3e-4,
    }  # fmt: skip
    assert row.metrics == {"final/validation_loss": 0.5}
    row = table["consistency/rsp-1-paper-2"]
    assert (row.hyperparameters["student"], row.hyperparameters["mu"]) == ("paper", 3)
    assert row.metrics == {"final/validation_loss": 0.25, "final/validation_accuracy": 0.75}
    assert set(scalars(folder)) == {"final/validation_loss", "final/validation_accuracy"}
    assert {row.status for row in table.values()} == {"STATUS_SUCCESS"}


def test_the_end_of_a_training_is_written_beside_its_curves(tmp_path: Path) -> None:
    _train(Records(tmp_path))
    write_end(tmp_path, Hyperparameters("finetune", "kather", "rsp", 0, 64), {"validation_loss": 0.5})
    points = scalars(tmp_path)
    assert points["final/validation_loss"] == [(0, 0.5)]
    assert len(points["loss/train"]) == EPOCHS
    tags = [
        value.tag
        for path in tmp_path.iterdir()
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
    ]
    assert tags.count("_hparams_/session_start_info") == 1
