from __future__ import annotations

import copy
import math
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import numpy as np
import pytest
import torch
import torchvision
from torch.utils.data import DataLoader, Dataset

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import patch_loader
from histo_monai.models.checkpoint import save_model
from histo_monai.models.heads.task import LinearHead
from histo_monai.models.start import EncoderStart
from histo_monai.models.task_model import from_encoder
from histo_monai.models.teacher_student import TeacherStudent
from histo_monai.pretraining.moco import MoCo
from histo_monai.pretraining.protocol import Task
from histo_monai.pretraining.settings import MoCoSettings
from histo_monai.pretraining.trainer import PretrainResult, pretrain, training_step
from histo_monai.training.fit import Records
from histo_monai.utils.randomness import Step
from tests.ranks import in_two_ranks

SIDE = 32
CPU = torch.device("cpu")

SETTINGS = MoCoSettings(
    epochs=2,
    batch_size=4,
    lr=0.02,
    lr_from_weights=1e-4,
    warmup=None,
    momentum=0.9,
    weight_decay=1e-4,
    queue_size=10,
    key_momentum=0.9,
    temperature=0.2,
)


class Textures(Dataset[Any]):
    """Noise of one wavelength each, in all directions: turning, mirroring and coloring leave it what it is."""

    def __init__(self, num: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.frequency = torch.linspace(2.0, 12.0, num)[torch.randperm(num, generator=generator)]
        axis = torch.fft.fftfreq(SIDE) * SIDE
        distance = torch.hypot(axis[:, None], axis[None, : SIDE // 2 + 1].abs())
        band = torch.exp(-0.5 * (distance - self.frequency.view(-1, 1, 1)).square() / 0.5**2)
        noise = torch.fft.irfft2(torch.fft.rfft2(torch.randn(num, SIDE, SIDE, generator=generator)) * band)
        gray = 128 + 45 * noise / noise.std(dim=(1, 2), keepdim=True)
        tint = torch.tensor([1.0, 0.8, 0.9]).view(1, 1, 3, 1, 1)
        self.patches = (gray.view(num, 1, 1, SIDE, SIDE) * tint).clamp(0, 255).to(torch.uint8)

    def __len__(self) -> int:
        return len(self.patches)

    def __getitems__(self, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.patches[rows], torch.tensor(rows)


def _moco(
    kind: type[MoCo] = MoCo,
    mpps: tuple[float, ...] = (1.0, 2.0, 4.0),
    encoder: str = "resnet18",
    **changes: Any,
) -> MoCo:
    torch.manual_seed(0)
    return kind(
        start=EncoderStart(encoder),
        patch_px=SIDE,
        mpps=mpps,
        augmentation_prob=0.5,
        settings=replace(SETTINGS, **changes),
    )


class DoubleMoCo(MoCo):
    """MoCo in float64, where rounding does not grow into another training."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.network.double()

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        task = super().training_task(patches, rows, step)
        return Task(tuple(views.double() for views in task.inputs), task.targets)

    def validation_task(self, patches: torch.Tensor, rows: torch.Tensor) -> Task:
        task = super().validation_task(patches, rows)
        return Task(tuple(views.double() for views in task.inputs), task.targets)


def _batches(data: Textures, size: int, seed: int | None) -> DataLoader[Any]:
    rank, world = idist.get_rank(), idist.get_world_size()
    order = EpochBatches(len(data), size, seed=seed, rank=rank, world_size=world)
    return patch_loader(data, order, workers=0, pin=False)


def _pretrain(moco: MoCo, num: int = 16, num_validation: int = 7, **records: Any) -> PretrainResult:
    training = _batches(Textures(num, 1), moco.batch_size, seed=0)
    validation = _batches(Textures(num_validation, 2), 4 if num_validation < 64 else 64, seed=None)
    return pretrain(moco, training, validation, seed=0, device=CPU, records=Records(**records))


def _train_some_steps(moco: MoCo, num_steps: int, num: int = 7) -> tuple[list[Task], list[torch.Tensor]]:
    """Steps over batches of `num` samples that come back, through the step of the engine."""
    data, network = Textures(num, 1), moco.network.train()
    optimizer = moco.optimizer(network)
    tasks, losses = [], []
    for i in range(1, num_steps + 1):
        rows = [(i * moco.batch_size + j) % num for j in range(moco.batch_size)]
        tasks.append(moco.training_task(*data.__getitems__(rows), Step(0, 1, i)))
        losses.append(training_step(moco, network, optimizer, tasks[-1], CPU)["loss"])
    return tasks, losses


def _copied(moco: MoCo) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in moco.network.state_dict().items()}


def _assert_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


class NaiveMoCo:
    """He et al. 2020, algorithm 1, with key statistics that follow: torchvision's network, a deque, loops."""

    def __init__(self, moco: MoCo) -> None:
        self.query = torchvision.models.resnet18(num_classes=128).double()
        weights = dict(moco.network.query.encoder.trunk.state_dict())
        weights |= {f"fc.{name}": w for name, w in moco.network.query.projection.state_dict().items()}
        self.query.load_state_dict(weights)
        self.key = copy.deepcopy(self.query).eval()
        self.held: deque[tuple[int, torch.Tensor]] = deque(maxlen=SETTINGS.queue_size)
        self.optimizer = torch.optim.SGD(
            self.query.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4, nesterov=True
        )

    def step(self, task: Task) -> list[float]:
        queries = self.query.train()(2 * task.inputs[0] - 1)
        keys = self.key(2 * task.inputs[1] - 1).detach()
        losses = []
        for query, key, row in zip(queries, keys, task.targets.tolist(), strict=True):
            others = [other for other_row, other in self.held if other_row != row]
            cosines = torch.stack([query @ other / (query.norm() * other.norm()) for other in [key, *others]])
            losses.append(-(cosines / 0.2).softmax(0)[0].log())
        self.optimizer.zero_grad()
        (sum(losses) / len(losses)).backward()
        self.optimizer.step()
        slow, fast = self.key.state_dict(), self.query.state_dict()
        self.key.load_state_dict({n: 0.9 * slow[n] + (1 - 0.9) * fast[n] for n in slow})
        self.held.extend(zip(task.targets.tolist(), keys, strict=True))
        return [loss.item() for loss in losses]


def test_losses_are_those_of_a_naive_loop_over_steps_and_samples() -> None:
    moco = _moco(DoubleMoCo)
    naive = NaiveMoCo(moco)
    for task, losses in zip(*_train_some_steps(moco, 5), strict=True):
        assert losses.tolist() == pytest.approx(naive.step(task), abs=1e-6)
    queue = moco.network.queue
    order = (torch.arange(10) + 5 * 4) % 10
    assert queue.ids[order].tolist() == [row for row, _ in naive.held]
    expected = torch.nn.functional.normalize(torch.stack([key for _, key in naive.held]), dim=1)
    torch.testing.assert_close(queue.keys[order], expected)


def test_the_first_step_has_nothing_to_distinguish() -> None:
    _, losses = _train_some_steps(_moco(), 2)
    assert losses[0].tolist() == [0.0] * 4
    assert losses[1].min() > 0


def test_training_counts_the_keys_of_other_patches_and_validation_those_of_the_batch() -> None:
    moco = _moco()
    points = torch.eye(128)
    moco.network.enqueue(points[[0, 0, 1]], torch.tensor([7, 3, 3]))
    outputs, task = (points[[0, 0, 0]], points[[0, 0, 2]]), Task((), torch.tensor([7, 3, 5]))
    e = math.exp(1 / SETTINGS.temperature)
    in_training = moco.measure(outputs, task)
    moco.network.eval()
    in_validation = moco.measure(outputs, task)
    # Three positives: two of cosine 1, one of 0. A tie is not right.
    for measured, sums, right in (
        (in_training, [(2 * e + 1) / e, 2 * e / e, 2 * e + 1 + 1], [0, 0, 0]),
        (in_validation, [(2 * e + 1) / e, (2 * e + 1) / e, 2 * e + 1], [0, 0, 0]),
    ):
        assert measured["loss"].exp().tolist() == pytest.approx(sums, rel=1e-5)
        assert measured["accuracy"].tolist() == right
    distinct = moco.measure((points[:3], points[:3]), task)
    assert distinct["accuracy"].tolist() == [1, 1, 1]


def test_validation_detects_a_network_that_only_separates_old_keys_from_new() -> None:
    moco = _moco()
    old, new = torch.eye(128)[:2]
    moco.network.enqueue(old.expand(8, -1), torch.arange(8))
    outputs, task = (new.expand(4, -1), new.expand(4, -1)), Task((), torch.arange(4))
    assert moco.measure(outputs, task)["accuracy"].tolist() == [1, 1, 1, 1]
    moco.network.eval()
    measured = moco.measure(outputs, task)
    assert measured["accuracy"].tolist() == [0, 0, 0, 0]
    assert measured["loss"].tolist() == pytest.approx([math.log(4)] * 4, abs=1e-6)


def test_validation_changes_no_byte_of_the_network() -> None:
    moco = _moco()
    _train_some_steps(moco, 4)
    before = _copied(moco)
    moco.epochs = 0
    result = _pretrain(moco)
    _assert_equal(before, _copied(moco))
    assert result.validation["loss"] > 0


def test_a_patch_is_validated_in_the_same_views_in_any_company() -> None:
    moco, patches = _moco(), Textures(6, 0).patches
    rows = torch.tensor([0, 5, 64, 69, 130, 7])
    patches[2] = patches[0]
    whole = moco.validation_task(patches, rows)
    moco.training_task(patches, rows, Step(0, 1, 1))
    parts = [moco.validation_task(patches[part], rows[part]) for part in (slice(0, 1), slice(1, 6))]
    for views, first, second in zip(whole.inputs, parts[0].inputs, parts[1].inputs, strict=True):
        assert torch.equal(views, torch.cat([first, second]))
        assert torch.equal(views[0], views[2])  # row 64 is seen as row 0 is
    assert not torch.equal(*whole.inputs)


def test_views_change_with_the_epoch_and_repeat_with_the_step() -> None:
    moco, patches, rows = _moco(), Textures(6, 0).patches, torch.arange(6)
    first, again, later = (
        moco.training_task(patches, rows, Step(3, e, i)) for e, i in ((1, 1), (1, 1), (2, 9))
    )
    for view, same, other in zip(first.inputs, again.inputs, later.inputs, strict=True):
        assert torch.equal(view, same)
        assert not torch.equal(view, other)


def test_two_processes_see_the_views_of_one() -> None:
    moco, patches, rows = _moco(), Textures(8, 0).patches, torch.arange(8)
    whole = moco.training_task(patches, rows, Step(0, 1, 1))
    halves = (slice(0, 4), slice(4, 8))
    parts = [moco.training_task(patches[h], rows[h], Step(0, 1, 1, r, 2)) for r, h in enumerate(halves)]
    for views, *of_ranks in zip(whole.inputs, *(part.inputs for part in parts), strict=True):
        assert torch.equal(views, torch.cat(of_ranks))


def _one_of_two(device: torch.device, folder: str) -> None:
    torch.set_num_threads(1)
    moco = _moco(DoubleMoCo, batch_size=8)
    result = _pretrain(moco)
    torch.save((result.curves, _copied(moco)), f"{folder}/{idist.get_rank()}.pt")


@pytest.mark.slow
def test_two_processes_have_the_queue_and_the_losses_of_one(tmp_path: Path) -> None:
    in_two_ranks(_one_of_two, str(tmp_path))
    alone = _moco(DoubleMoCo, batch_size=8)
    expected = _pretrain(alone).curves
    for rank in range(2):
        curves, state = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert state["queue.ids"].tolist() == alone.network.queue.ids.tolist()
        for name, value in _copied(alone).items():
            torch.testing.assert_close(state[name], value, atol=1e-6, rtol=1e-6)
        for row, want in zip(curves, expected, strict=True):
            assert row == pytest.approx(want, rel=1e-6)


class KilledError(Exception):
    """Stands for whatever ends a run."""


def test_a_killed_run_started_again_ends_in_the_same_bytes_queue_included(tmp_path: Path) -> None:
    whole = _moco(epochs=3)
    result = _pretrain(whole)

    class Killed(MoCo):
        def after_step(self, outputs: Any, task: Task) -> None:
            super().after_step(outputs, task)
            if self.network.queue.num_added == 24:
                raise KilledError

    with pytest.raises(KilledError):
        _pretrain(_moco(Killed, epochs=3), resume=tmp_path / "state.pt")
    again = _moco(epochs=3)
    resumed = _pretrain(again, resume=tmp_path / "state.pt")
    _assert_equal(_copied(whole), _copied(again))
    assert resumed.curves == result.curves
    assert whole.network.queue.num_added == 16 * result.best_epoch


def _mean_distance_of_nearest(moco: MoCo) -> float:
    """How far apart in frequency a query and the nearest key of 64 unseen textures are; 10 / 3 by chance."""
    data = Textures(64, 3)
    task = moco.validation_task(data.patches, torch.arange(64))
    with torch.no_grad():
        queries, keys = moco.network.eval()(*task.inputs)
    return float((data.frequency - data.frequency[(queries @ keys.T).argmax(dim=1)]).abs().mean())


@pytest.mark.slow
@pytest.mark.learns
def test_it_learns_textures_whatever_their_turn_and_color() -> None:
    """Rate and temperature of `params.yaml`; a ResNet of ten layers, which small batches of small patches suit."""
    moco = _moco(encoder="resnet10t", epochs=16, batch_size=16, queue_size=32, lr=0.01, temperature=0.07)
    result = _pretrain(moco, num=192, num_validation=64)
    assert result.validation["loss"] < 0.9 * math.log(64)  # 64 keys that cannot be told apart
    assert _mean_distance_of_nearest(moco) < 0.35 * 10 / 3  # at random initializations 1.4 to 2.6


def _saved(moco: MoCo, folder: Path) -> Path:
    path = folder / "encoder.safetensors"
    about = {"kind": "encoder", "method": "moco", "source": "", "corpus": ""}
    save_model(path, moco.encoder_state(), {**about, **moco.description()})
    return path


def test_fine_tuning_starts_from_the_trunk_of_the_query_network_and_a_linear_layer(tmp_path: Path) -> None:
    moco = _moco()
    _train_some_steps(moco, 2)
    model, description = from_encoder(_saved(moco, tmp_path), num_outputs=3)
    views = torch.rand(2, 3, SIDE, SIDE)
    assert torch.equal(model.encoder.eval()(views), moco.network.eval().query.encoder(views))
    assert not torch.equal(model.encoder(views), moco.network.key.encoder(views))
    assert isinstance(model.head, LinearHead)
    assert model(views).shape == (2, 3)
    assert description["mpps"] == [1.0]
    assert {name.split(".")[0] for name in moco.encoder_state()} == {"encoder"}


def test_in_consistency_training_only_the_linear_layer_learns(tmp_path: Path) -> None:
    model, _ = from_encoder(_saved(_moco(), tmp_path), num_outputs=3)
    pair = TeacherStudent(model).train()
    before = {name: value.clone() for name, value in pair.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in pair.parameters() if p.requires_grad], lr=1.0)
    pair.student(pair.features(torch.rand(4, 3, SIDE, SIDE))).square().sum().backward()
    optimizer.step()
    moved = {name for name, value in pair.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {"student.linear.weight", "student.linear.bias"}


def test_only_the_finest_resolution_is_read() -> None:
    assert _moco().mpps == (1.0,)


@pytest.mark.parametrize(
    ("name", "value"), [("mpps", ()), ("temperature", 0.0), ("queue_size", 0), ("key_momentum", 1.5)]
)
def test_settings_outside_their_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"finest|positive|at least 1|lies in 0\.\.1"):
        _moco(**{name: value})


def test_picture_frames_in_green_where_the_own_key_is_nearest() -> None:
    moco = _moco()
    task = moco.validation_task(Textures(3, 0).patches, torch.arange(3))
    points = torch.eye(128)[:3]
    right, wrong = moco.picture((points, points), task), moco.picture((points, points.roll(1, 0)), task)
    assert right.dtype == np.uint8
    assert right.shape == wrong.shape
    green, red = ([26, 127, 55], [178, 24, 43])
    for picture, there, missing in ((right, green, red), (wrong, red, green)):
        assert (picture == there).all(axis=-1).sum() > 100
        assert not (picture == missing).all(axis=-1).any()
