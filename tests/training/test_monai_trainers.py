"""Our handlers in MONAI's own trainers: a few steps of a small network, against what is written out by hand."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from ignite.metrics import Accuracy
from monai.bundle import ConfigParser
from monai.data import DataLoader, Dataset
from monai.engines import SupervisedEvaluator, SupervisedTrainer
from monai.handlers import ValidationHandler, from_engine
from torch import nn

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.models.average import StudentAndAverage
from histo_monai.training.handlers import (
    AverageFollows,
    Curves,
    OrderOfEpoch,
    ScheduledRates,
    StopWhenNotFinite,
    TrainingDivergedError,
)
from histo_monai.training.lookahead import Lookahead
from histo_monai.training.resume import ResumePoint
from histo_monai.training.schedule import Schedule

NUM, BATCH, EPOCHS = 12, 4, 4
STEPS = EPOCHS * NUM // BATCH


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def samples() -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    return [{"image": torch.rand(3, 8, 8, generator=generator), "label": n % 2} for n in range(NUM)]


def trainer_of(
    net: nn.Module, optimizer: Any, handlers: list[Any], decollate: bool = True, loss: Any = None
) -> SupervisedTrainer:
    batches = EpochBatches(NUM, BATCH, seed=0)
    return SupervisedTrainer(
        device="cpu",
        max_epochs=EPOCHS,
        train_data_loader=DataLoader(Dataset(samples()), batch_sampler=batches),
        network=net,
        optimizer=optimizer,
        loss_function=loss or nn.CrossEntropyLoss(),
        train_handlers=[OrderOfEpoch(batches), *handlers],
        decollate=decollate,
    )


class Seen:
    """Notes what `look` gives after each step."""

    def __init__(self, look: Any) -> None:
        self.look, self.all = look, list[Any]()

    def attach(self, trainer: Engine) -> None:
        trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: self.all.append(self.look()))


def test_rates_rise_and_fall_as_the_schedule_has_them() -> None:
    net = network()
    schedule = Schedule(EPOCHS, "sgd", lr=0.2, weight_decay=0.0, warmup=0.25)
    optimizer = schedule.build_optimizer(
        [{"params": net[1].parameters(), "lr": 0.1}, {"params": net[4].parameters()}]
    )
    seen = Seen(lambda: [group["lr"] for group in optimizer.param_groups])
    trainer_of(net, optimizer, [ScheduledRates(optimizer, schedule), seen]).run()
    rising = STEPS // 4
    shape = [
        step / rising
        if step < rising
        else (1 + math.cos(math.pi * (step - rising) / (STEPS + 1 - rising))) / 2
        for step in range(1, STEPS + 1)
    ]
    assert seen.all == [pytest.approx([0.1 * rate, 0.2 * rate]) for rate in shape]


def test_the_average_follows_the_student_and_is_what_an_evaluator_sees() -> None:
    pair = StudentAndAverage(network(), decay=0.8)
    optimizer = torch.optim.SGD(pair.student.parameters(), lr=0.5)
    start = copy.deepcopy(pair.student.state_dict())
    seen = Seen(lambda: copy.deepcopy(pair.student.state_dict()))
    trainer_of(pair.student, optimizer, [AverageFollows(pair), seen]).run()
    expected = {name: value.double() for name, value in start.items()}
    for step, student in enumerate(seen.all, 1):
        kept = min(0.8, step / (step + 1))
        expected = {name: kept * value + (1 - kept) * student[name] for name, value in expected.items()}
    for name, value in pair.average.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value.double(), expected[name], rtol=1e-4, atol=1e-6)
    assert not torch.equal(pair.average[1].weight, pair.student[1].weight)

    evaluator = SupervisedEvaluator(
        "cpu", DataLoader(Dataset(samples()), batch_size=NUM), network=pair.average
    )
    evaluator.run()
    images = torch.stack([sample["image"] for sample in samples()])
    with torch.inference_mode():
        by_hand = pair.average.eval()(images)
    torch.testing.assert_close(torch.stack([out["pred"] for out in evaluator.state.output]), by_hand)


@pytest.mark.parametrize("decollate", [True, False])
def test_a_loss_that_is_not_finite_ends_the_training(decollate: bool) -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    handlers = [StopWhenNotFinite()]
    bad = trainer_of(net, optimizer, handlers, decollate, loss=lambda x, y: x.sum() * float("nan"))
    with pytest.raises(TrainingDivergedError, match="nan at epoch 1, iteration 3"):
        bad.run()
    net = network()
    trainer_of(net, torch.optim.SGD(net.parameters(), lr=0.1), handlers, decollate).run()


def _train(folder: Path, fingerprint: str = "a", end_after: int = EPOCHS) -> tuple[dict[str, Any], list[Any]]:
    """Until the power fails in the epoch after `end_after`."""
    net = network()
    optimizer = Lookahead(torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9), steps=3, slow_step=0.5)
    metric = Accuracy(from_engine(["pred", "label"]))
    evaluator = SupervisedEvaluator(
        "cpu", DataLoader(Dataset(samples()), batch_size=NUM), net, key_val_metric={"accuracy": metric}
    )
    curves = Curves(evaluator, optimizer)
    parts = {"network": net, "optimizer": optimizer, "curves": curves}
    point = ResumePoint(folder / "state.pt", fingerprint, parts)
    trainer = trainer_of(
        net, optimizer, [ValidationHandler(1, evaluator), curves, point, StopWhenNotFinite()]
    )

    def fail() -> None:
        raise KeyboardInterrupt

    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=end_after * NUM // BATCH + 1), fail)
    if end_after < EPOCHS:
        with pytest.raises(KeyboardInterrupt):
            trainer.run()
    else:
        trainer.run()
    return copy.deepcopy(net.state_dict()), curves.rows


def test_a_training_that_was_cut_off_ends_as_one_that_was_not(tmp_path: Path) -> None:
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    whole, rows = _train(tmp_path / "whole")
    _train(tmp_path / "cut", end_after=2)
    resumed, same_rows = _train(tmp_path / "cut")
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert set(rows[0]) == {"epoch", "lr", "validation_accuracy"}
    assert rows == same_rows
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name
    done, _ = _train(tmp_path / "cut")  # nothing is left to train
    assert all(torch.equal(value, done[name]) for name, value in whole.items())
    _, of_another = _train(tmp_path / "cut", fingerprint="b", end_after=1)
    assert [row["epoch"] for row in of_another] == [1]


def test_a_bundle_names_the_handlers() -> None:
    here = "histo_monai."
    config = {
        "pair": {"_target_": f"{here}models.average.StudentAndAverage", "model": "$@network", "decay": 0.9},
        "network": network(),
        "schedule": {
            "_target_": f"{here}training.schedule.Schedule",
            **{"epochs": EPOCHS, "optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "milestones": [2]},
        },
        "optimizer": "$@schedule.build_optimizer(@pair.student.parameters())",
        "handlers": [
            {
                "_target_": f"{here}training.handlers.ScheduledRates",
                "optimizer": "@optimizer",
                "schedule": "@schedule",
            },
            {"_target_": f"{here}training.handlers.AverageFollows", "pair": "@pair"},
            {"_target_": f"{here}training.handlers.StopWhenNotFinite"},
        ],
    }
    parser = ConfigParser(config)
    pair, optimizer = parser.get_parsed_content("pair"), parser.get_parsed_content("optimizer")
    trainer_of(pair.student, optimizer, parser.get_parsed_content("handlers")).run()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
    assert int(pair.num_steps) == STEPS
