from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import patch_loader
from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.protocol import Task
from histo_monai.pretraining.random import Random
from histo_monai.pretraining.rsp import RSP
from histo_monai.pretraining.settings import LookaheadSettings, PretextSettings, RSPSettings
from histo_monai.pretraining.trainer import PretrainResult, pretrain
from histo_monai.training.fit import Records
from histo_monai.training.handlers import TrainingDivergedError
from histo_monai.utils.randomness import Step
from tests.devices import ComputeIn
from tests.event_files import read_events, scalars
from tests.ranks import in_two_ranks
from tests.waves import drop_features

SIDE = 32


class Stripes(Dataset[Any]):
    """Triples whose scale is plain to see: stripes of period 4, 8 and 16 px at a random phase, on noise."""

    def __init__(self, num: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        phase = torch.rand(num, 3, 1, 1, 1, generator=generator) * 16
        period = torch.tensor([4.0, 8.0, 16.0]).view(1, 3, 1, 1, 1)
        wave = torch.sin(2 * torch.pi * (torch.arange(SIDE).float() + phase) / period)
        pixels = 128 + 80 * wave + 20 * torch.randn(num, 3, 3, SIDE, SIDE, generator=generator)
        self.patches = pixels.clamp(0, 255).to(torch.uint8)

    def __len__(self) -> int:
        return len(self.patches)

    def __getitems__(self, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.patches[rows], torch.tensor(rows)


def _rsp(
    kind: type[RSP] = RSP, augmentation_prob: float = 0.0, encoder: str = "test_resnet", **changes: Any
) -> RSP:
    torch.manual_seed(0)
    settings = RSPSettings(
        epochs=2,
        batch_size=8,
        lr=0.01,
        lr_from_weights=1e-4,
        warmup=None,
        momentum=0.9,
        weight_decay=1e-4,
        lookahead=LookaheadSettings(steps=5, slow_step=0.5),
    )
    return kind(
        start=EncoderStart(encoder),
        patch_px=SIDE,
        mpps=(1.0, 2.0, 4.0),
        augmentation_prob=augmentation_prob,
        settings=replace(settings, **changes),
    )


class DoubleRSP(RSP):
    """RSP in float64, where rounding does not grow into another training."""

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        task = super().training_task(patches, rows, step)
        return Task((task.inputs[0].double(), task.inputs[1]), task.targets)

    def validation_task(self, patches: torch.Tensor, rows: torch.Tensor) -> Task:
        task = super().validation_task(patches, rows)
        return Task((task.inputs[0].double(), task.inputs[1]), task.targets)

    def measure(self, outputs: torch.Tensor, task: Task) -> dict[str, torch.Tensor]:
        loss = F.cross_entropy(outputs.flatten(0, 1), task.targets.flatten(), reduction="none")
        return {**super().measure(outputs, task), "loss": loss.unflatten(0, task.targets.shape).mean(dim=1)}


def _double_rsp(**changes: Any) -> RSP:
    rsp = _rsp(kind=DoubleRSP, **changes)
    rsp.network.double()
    return rsp


def _pretrain(pretext: RSP, **changes: Any) -> PretrainResult:
    rank, world = idist.get_rank(), idist.get_world_size()
    num = changes.pop("num", 40)
    training, validation = Stripes(num, 1), Stripes(12, 2)
    batches = EpochBatches(num, min(num, pretext.batch_size), seed=0, rank=rank, world_size=world)
    workers, device = changes.pop("workers", 0), changes.pop("device", torch.device("cpu"))
    return pretrain(
        pretext,
        patch_loader(training, batches, workers=workers, pin=False),
        patch_loader(
            validation, EpochBatches(12, 6, seed=None, rank=rank, world_size=world), workers=0, pin=False
        ),
        seed=0,
        device=device,
        records=Records(**changes),
    )


def _same(first: RSP, second: RSP) -> bool:
    a, b = first.network.state_dict(), second.network.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.slow
@pytest.mark.learns
def test_it_learns_the_order_of_obvious_scales() -> None:
    rsp = _rsp(encoder="resnet18", epochs=8, batch_size=10)
    result = _pretrain(rsp)
    assert result.validation["accuracy"] > 0.6
    assert result.curves[0]["validation_loss"] > result.validation["loss"]


def test_the_selected_weights_are_those_of_the_lowest_validation_loss(tmp_path: Path) -> None:
    rsp = _rsp(epochs=4, lr=0.05)
    result = _pretrain(rsp)
    losses = [row["validation_loss"] for row in result.curves]
    assert result.best_epoch == 1 + losses.index(min(losses))
    assert result.validation["loss"] == pytest.approx(min(losses), abs=1e-6)


def test_no_epoch_keeps_the_initialization() -> None:
    torch.manual_seed(0)
    random = Random(
        start=EncoderStart("test_resnet"),
        patch_px=SIDE,
        mpps=(1.0, 2.0, 4.0),
        augmentation_prob=0.5,
        settings=PretextSettings(),
    )
    before = {name: value.clone() for name, value in random.network.state_dict().items()}
    result = _pretrain(random)
    assert result.curves == []
    assert result.best_epoch == 0
    for name, value in random.network.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.slow
def test_reading_processes_change_nothing() -> None:
    here, elsewhere = _rsp(augmentation_prob=0.5), _rsp(augmentation_prob=0.5)
    _pretrain(here)
    _pretrain(elsewhere, workers=2)
    assert _same(here, elsewhere)


class KilledError(Exception):
    """Stands for whatever ends a run."""


def test_a_killed_run_started_again_ends_in_the_same_weights(tmp_path: Path) -> None:
    whole, killed, again = (_rsp(augmentation_prob=0.5, epochs=3) for _ in range(3))
    for pretext in (whole, killed, again):
        drop_features(pretext.network)
    result = _pretrain(whole)

    steps = 0

    def fail_in_the_middle_of_epoch_two(outputs: Any, task: Task) -> None:
        nonlocal steps
        steps += 1
        if steps == 8:
            raise KilledError

    killed.after_step = fail_in_the_middle_of_epoch_two  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        _pretrain(killed, resume=tmp_path / "state.pt")

    resumed = _pretrain(again, resume=tmp_path / "state.pt")
    assert _same(whole, again)
    assert resumed.curves == result.curves
    assert resumed.best_epoch == result.best_epoch


def test_a_training_goes_from_the_cpu_to_a_device_and_back(
    tmp_path: Path, device: torch.device, compute_in: ComputeIn
) -> None:
    """An epoch on each: the curves are those of a training that stays on the CPU."""
    compute_in(torch.float32)
    there = (torch.device("cpu"), device, torch.device("cpu"))
    for epochs, place in enumerate(there, start=1):
        moved = _double_rsp(epochs=epochs)
        curves = _pretrain(moved, num=16, device=place, resume=tmp_path / "state.pt").curves
    stayed = _double_rsp(epochs=3)
    expected = _pretrain(stayed, num=16).curves
    assert [row["epoch"] for row in curves] == [1, 2, 3]
    for row, want in zip(curves, expected, strict=True):
        assert row == pytest.approx(want, rel=1e-5)
    for name, value in stayed.network.state_dict().items():
        torch.testing.assert_close(moved.network.state_dict()[name], value, rtol=1e-4, atol=1e-6)


def test_a_state_of_another_training_is_not_resumed(tmp_path: Path) -> None:
    _pretrain(_rsp(epochs=1), resume=tmp_path / "state.pt", fingerprint="one")
    other = _rsp(epochs=1, lr=0.02)
    _pretrain(other, resume=tmp_path / "state.pt", fingerprint="two")
    fresh = _rsp(epochs=1, lr=0.02)
    _pretrain(fresh)
    assert _same(other, fresh)


def test_a_damaged_state_starts_over(tmp_path: Path) -> None:
    (tmp_path / "state.pt").write_bytes(b"half a file")
    resumed, fresh = _rsp(epochs=1), _rsp(epochs=1)
    _pretrain(resumed, resume=tmp_path / "state.pt")
    _pretrain(fresh)
    assert _same(resumed, fresh)


def test_a_loss_that_is_not_finite_stops_with_one_line() -> None:
    with pytest.raises(TrainingDivergedError, match=r"epoch 1, iteration 5.*lr") as caught:
        _pretrain(_rsp(lr=1e30))
    assert "\n" not in str(caught.value)


def _one_of_two(device: torch.device, folder: str) -> None:
    torch.set_num_threads(1)
    rsp = _double_rsp()
    result = _pretrain(rsp, num=16, device=device)
    if idist.get_rank() == 0:
        torch.save((result.curves, rsp.network.state_dict()), f"{folder}/two.pt")


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one(tmp_path: Path, device: torch.device) -> None:
    """On a GPU both share it, beside each other by gloo: NCCL takes one process a GPU."""
    in_two_ranks(_one_of_two, str(tmp_path), device=device)
    curves, state = torch.load(tmp_path / "two.pt", weights_only=True, map_location="cpu")
    alone = _double_rsp()
    expected = _pretrain(alone, num=16).curves
    for row, want in zip(curves, expected, strict=True):
        assert row == pytest.approx(want, rel=1e-6)
    torch.testing.assert_close(
        state["encoder.trunk.bn1.running_var"], alone.network.encoder.trunk.bn1.running_var
    )


def test_tensorboard_gets_curves_pictures_and_how_many_images_it_reads(tmp_path: Path) -> None:
    begun = time.monotonic()
    result = _pretrain(_rsp(epochs=2, batch_size=4), tensorboard=tmp_path / "events")
    spent = time.monotonic() - begun
    points = scalars(tmp_path / "events")
    for measure, part in itertools.product(("loss", "accuracy"), ("train", "validation")):
        values = [value for _, value in points[f"pretext_{measure}/{part}"]]
        assert values == pytest.approx([row[f"{part}_{measure}"] for row in result.curves], rel=1e-5)
    assert len(read_events(tmp_path / "events").Images("pictures/answers")) == 2
    images = 40 * 3  # of an epoch: triples
    seconds = [images / rate for _, rate in points["images_per_second"]]
    assert 0 < sum(seconds) < spent
