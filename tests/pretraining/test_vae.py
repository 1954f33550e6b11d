from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import patch_loader
from histo_monai.data.simulated.datasets.kather import CLASSES, Patient, render_patches
from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.heads.task import LinearHead
from histo_monai.models.start import EncoderStart
from histo_monai.models.task_model import from_encoder
from histo_monai.pretraining.orders import RSPNetwork
from histo_monai.pretraining.protocol import Task
from histo_monai.pretraining.settings import VAESettings
from histo_monai.pretraining.trainer import PretrainResult, pretrain
from histo_monai.pretraining.vae import VAE, Decoded, VAENetwork
from histo_monai.training.fit import Records
from histo_monai.utils.randomness import Step
from tests.ranks import in_two_ranks

SIDE = 32
SETTINGS = VAESettings(
    epochs=2,
    batch_size=8,
    lr=1e-3,
    lr_from_weights=1e-4,
    warmup=None,
    weight_decay=1e-4,
    kl_weight=1.0,
    decoder_width=2,
)


def _vae(kind: type[VAE] = VAE, patch_px: int = SIDE, **changes: Any) -> VAE:
    torch.manual_seed(0)
    return kind(
        start=EncoderStart(),
        patch_px=patch_px,
        mpps=(1.0, 2.0, 4.0),
        augmentation_prob=0.5,
        settings=replace(SETTINGS, **changes),
    )


def _patches(num: int, scales: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(num)
    return torch.randint(0, 256, (num, scales, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)


def _tissue(seed: int) -> torch.Tensor:
    """Nine simulated patches of a patient, one of each class, cut into 36 of 32 px that do not overlap."""
    patches = render_patches(Patient("", seed, tuple((label, 0) for label in CLASSES)))
    pixels = torch.from_numpy(np.stack(patches)[:, :192, :192]).permute(0, 3, 1, 2)
    cut = pixels.unfold(2, SIDE, SIDE).unfold(3, SIDE, SIDE)
    return cut.permute(0, 2, 3, 1, 4, 5).reshape(-1, 1, 3, SIDE, SIDE).contiguous()


class Pixels(Dataset[Any]):
    """Patches in memory."""

    def __init__(self, patches: torch.Tensor) -> None:
        self.patches = patches

    def __len__(self) -> int:
        return len(self.patches)

    def __getitems__(self, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.patches[rows], torch.tensor(rows)


def _pretrain(vae: VAE, training: torch.Tensor, validation: torch.Tensor, **records: Any) -> PretrainResult:
    place = {"rank": idist.get_rank(), "world_size": idist.get_world_size()}
    batches = EpochBatches(len(training), vae.batch_size, seed=0, **place)
    fixed = EpochBatches(len(validation), 6, seed=None, **place)
    return pretrain(
        vae,
        patch_loader(Pixels(training), batches, workers=0, pin=False),
        patch_loader(Pixels(validation), fixed, workers=0, pin=False),
        seed=0,
        device=torch.device("cpu"),
        records=Records(**records),
    )


def test_the_network_decodes_the_mean_moved_by_noise_of_the_posterior() -> None:
    torch.manual_seed(0)
    network = VAENetwork(build_encoder(), SIDE, decoder_width=2).double().eval()
    patches, noise = torch.rand(3, 3, SIDE, SIDE).double(), torch.randn(3, 512).double()
    features = network.encoder(patches)
    mean = features @ network.mean.weight.T + network.mean.bias
    answer = features @ network.log_variance.weight.T + network.log_variance.bias
    log_variance = 20 * (answer / 20).tanh()
    outputs = network(patches, noise)
    torch.testing.assert_close(outputs.mean, mean)
    torch.testing.assert_close(outputs.log_variance, log_variance)
    torch.testing.assert_close(outputs.images, network.decoder(mean + log_variance.exp().sqrt() * noise))
    torch.testing.assert_close(network(patches, 0 * noise).images, network.decoder(mean))


@pytest.mark.parametrize("answer", [-1e30, -200.0, 200.0, 1e30])
def test_no_answer_makes_the_variance_overflow(answer: float) -> None:
    vae = _vae()
    torch.nn.init.constant_(vae.network.log_variance.bias, answer)
    task = vae.training_task(_patches(4), torch.arange(4), Step(0, 1, 1))
    measured = vae.measure(vae.network(*task.inputs), task)
    assert all(values.isfinite().all() for values in measured.values())
    measured["loss"].mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in vae.network.parameters())


def test_the_bound_of_the_log_variance_is_part_of_the_gradient() -> None:
    vae = _vae()
    vae.network.double().eval()
    bias = vae.network.log_variance.bias
    torch.nn.init.constant_(bias, 15.0)
    task = vae.training_task(_patches(2), torch.arange(2), Step(0, 1, 1))
    task = Task((task.inputs[0].double(), task.inputs[1]), task.targets.double())

    def loss() -> torch.Tensor:
        return vae.measure(vae.network(*task.inputs), task)["loss"].sum()

    loss().backward()
    assert bias.grad is not None
    step = 1e-5
    with torch.no_grad():
        bias[7] += step
        above = loss()
        bias[7] -= 2 * step
        below = loss()
    assert bias.grad[7].item() == pytest.approx((above - below).item() / (2 * step), rel=1e-5)


def test_mean_and_log_variance_are_float32_under_autocast() -> None:
    network = _vae().network.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = network(torch.rand(2, 3, SIDE, SIDE), torch.randn(2, 512))
    assert {part.dtype for part in outputs} == {torch.float32}


def test_it_sees_the_finest_patch_as_it_is() -> None:
    vae, patches = _vae(), _patches(4, scales=3)
    assert vae.mpps == (1.0,)
    rows = torch.arange(4)
    for task in (vae.training_task(patches, rows, Step(0, 1, 1)), vae.validation_task(patches, rows)):
        torch.testing.assert_close(task.inputs[0], patches[:, 0] / 255)
        torch.testing.assert_close(task.targets, patches[:, 0] / 255)


def test_noise_is_standard_normal_changes_with_the_step_and_repeats_with_it() -> None:
    vae = _vae()
    first, again, later = (
        vae.training_task(_patches(64), torch.arange(64), Step(3, e, i)).inputs[1]
        for e, i in ((1, 1), (1, 1), (2, 9))
    )
    assert torch.equal(first, again)
    assert abs((first * later).mean()) < 4 / np.sqrt(first.numel())
    assert abs(first.mean()) < 4 / np.sqrt(first.numel())
    assert abs(first.square().mean() - 1) < 4 * np.sqrt(2 / first.numel())


def test_two_processes_see_the_noise_of_one() -> None:
    vae, patches = _vae(), _patches(8)
    whole = vae.training_task(patches, torch.arange(8), Step(0, 1, 1))
    rows = torch.arange(8).chunk(2)
    parts = [vae.training_task(patches[rows[r]], rows[r], Step(0, 1, 1, r, 2)) for r in range(2)]
    assert torch.equal(whole.inputs[1], torch.cat([part.inputs[1] for part in parts]))


def test_validation_noise_belongs_to_the_row_and_not_to_its_batch() -> None:
    vae, patches = _vae(), _patches(6)
    whole = vae.validation_task(patches, torch.tensor([0, 1, 2, 63, 64, 129])).inputs[1]
    part = vae.validation_task(patches[4:], torch.tensor([64, 129])).inputs[1]
    assert torch.equal(part, whole[4:])
    assert torch.equal(whole[4], whole[0])
    assert torch.equal(whole[5], whole[1])
    assert len(whole[:4].unique(dim=0)) == 4


def test_measures_are_their_definitions() -> None:
    vae = _vae(kl_weight=0.25)
    task = vae.validation_task(_patches(3), torch.arange(3))
    generator = torch.Generator().manual_seed(0)
    images = 2 * torch.rand(3, 3, SIDE, SIDE, generator=generator) - 1
    mean, log_variance = torch.randn(2, 3, 512, generator=generator)
    measured = vae.measure(Decoded(images, mean, log_variance), task)
    assert tuple(measured) == VAE.MEASURES
    for i in range(3):
        normal = torch.distributions.Normal(mean[i], (log_variance[i] / 2).exp())
        kl = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0)).sum().item()
        difference = (images[i] + 1) / 2 - task.targets[i]
        reconstruction = 0.5 * (2 * difference).square().sum().item()
        assert measured["kl"][i].item() == pytest.approx(kl, rel=1e-5)
        assert measured["reconstruction"][i].item() == pytest.approx(reconstruction, rel=1e-5)
        assert measured["loss"][i].item() == pytest.approx(reconstruction + 0.25 * kl, rel=1e-5)
        assert measured["mse"][i].item() == pytest.approx(difference.square().mean().item(), rel=1e-5)


def test_the_trunk_starts_as_that_of_every_method() -> None:
    vae = _vae()
    torch.manual_seed(0)
    other = RSPNetwork(build_encoder()).encoder.state_dict()
    for name, value in vae.network.encoder.state_dict().items():
        assert torch.equal(value, other[name])


def test_a_side_that_the_decoder_does_not_reach_is_refused() -> None:
    with pytest.raises(ValueError, match=r"patch_px.*48"):
        _vae(patch_px=48)


def test_a_linear_head_starts_from_its_encoder(tmp_path: Path) -> None:
    vae = _vae()
    assert {name.split(".")[0] for name in vae.encoder_state()} == {"encoder"}
    description = {"kind": "encoder", "method": "vae", "source": "", "corpus": "", **vae.description()}
    save_model(tmp_path / "encoder.safetensors", vae.encoder_state(), description)
    model, about = from_encoder(tmp_path / "encoder.safetensors", 9)
    assert isinstance(model.head, LinearHead)
    assert about["mpps"] == [1.0]
    patches = torch.rand(2, 3, SIDE, SIDE)
    model.eval()
    vae.network.eval()
    assert torch.equal(model.encoder(patches), vae.network.encoder(patches))


@pytest.mark.parametrize("training", [True, False])
def test_a_picture_leaves_the_network_as_it_was(training: bool) -> None:
    vae = _vae()
    vae.network.train(training)
    task = vae.validation_task(_patches(10), torch.arange(10))
    outputs = vae.network(*task.inputs)
    before = {name: value.clone() for name, value in vae.network.state_dict().items()}
    picture, again = vae.picture(outputs, task), vae.picture(outputs, task)
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3
    assert (picture == again).all()
    for name, value in vae.network.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert {module.training for module in vae.network.modules()} == {training}
    assert all(parameter.grad is None for parameter in vae.network.parameters())
    outputs.images.sum().backward()  # the graph of the step is still whole


def test_a_picture_shows_reconstructions_and_samples() -> None:
    vae = _vae()
    vae.network.eval()
    task = vae.validation_task(_patches(2), torch.arange(2))
    outputs = vae.network(*task.inputs)
    picture = vae.picture(outputs, task)
    other_answers = vae.picture(outputs._replace(images=-outputs.images), task)
    torch.nn.init.constant_(vae.network.decoder.last.bias, 3.0)
    other_samples = vae.picture(outputs, task)
    rows = [np.flatnonzero((picture != other).any(axis=(1, 2))) for other in (other_answers, other_samples)]
    height = len(picture)
    assert rows[0].min() > height // 4
    assert rows[0].max() < rows[1].min()  # samples stand below the reconstructions
    assert rows[1].max() > height * 3 // 4


class KilledError(Exception):
    """Stands for whatever ends a run."""


def test_a_killed_run_started_again_ends_in_the_same_bytes(tmp_path: Path) -> None:
    training, validation = _patches(24), _patches(6)
    whole = _vae()
    curves = _pretrain(whole, training, validation).curves

    killed = _vae()
    steps = iter([None] * 4)

    def fail_in_epoch_two(outputs: Any, task: Task) -> None:
        if next(steps, KilledError) is KilledError:
            raise KilledError

    killed.after_step = fail_in_epoch_two  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        _pretrain(killed, training, validation, resume=tmp_path / "state.pt")

    again = _vae()
    assert _pretrain(again, training, validation, resume=tmp_path / "state.pt").curves == curves
    for name, vae in (("whole", whole), ("again", again)):
        save_model(tmp_path / f"{name}.safetensors", vae.network.state_dict(), {})
    assert (tmp_path / "whole.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()


class DoubleVAE(VAE):
    """The VAE in float64, where rounding does not grow into another training."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.network.double()

    def _task(self, patches: torch.Tensor, noise: torch.Tensor) -> Task:
        task = super()._task(patches, noise)
        return Task((task.inputs[0].double(), noise), task.targets.double())


def _one_of_two(device: torch.device, folder: str) -> None:
    torch.set_num_threads(1)
    vae = _vae(DoubleVAE, epochs=1)
    result = _pretrain(vae, _patches(16), _patches(12))
    if idist.get_rank() == 0:
        torch.save((result.curves, vae.network.state_dict()), f"{folder}/two.pt")


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    in_two_ranks(_one_of_two, str(tmp_path))
    curves, state = torch.load(tmp_path / "two.pt", weights_only=True)
    alone = _vae(DoubleVAE, epochs=1)
    expected = _pretrain(alone, _patches(16), _patches(12)).curves
    for row, want in zip(curves, expected, strict=True):
        assert row == pytest.approx(want, rel=1e-6)
    for name, value in alone.network.state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=1e-5, atol=1e-8, msg=name)


@pytest.mark.slow
@pytest.mark.learns
def test_it_reconstructs_tissue_of_another_patient_better_than_the_mean_image_does() -> None:
    training, validation = torch.cat([_tissue(seed) for seed in range(3)])[::2], _tissue(7)[::3]
    vae = _vae(epochs=3, batch_size=16, decoder_width=4)
    result = _pretrain(vae, training, validation)
    mean_image = training.float().mean(dim=0) / 255
    baseline = (validation / 255 - mean_image).square().mean().item()
    assert result.validation["mse"] < 0.9 * baseline
    assert result.validation["kl"] > 3
    vae.network.eval()
    task = vae.validation_task(validation, torch.arange(len(validation)))
    with torch.no_grad():
        decoded = vae.network(*task.inputs).images
    assert decoded.std(dim=0).mean() > 0.25 * (2 * task.targets).std(dim=0).mean()
