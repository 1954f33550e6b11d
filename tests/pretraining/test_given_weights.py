"""Rates of encoders that start from given weights, and schedules of pretraining."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import patch_loader
from histo_monai.models.start import EncoderStart
from histo_monai.pipeline.params import load_params
from histo_monai.pipeline.stages.pretrain import freezes_batchnorm
from histo_monai.pretraining import PRETEXTS
from histo_monai.pretraining.protocol import Task
from histo_monai.pretraining.settings import TrainedSettings
from histo_monai.pretraining.trainer import PretrainResult, pretrain, training_step
from histo_monai.training.fit import Records
from histo_monai.utils.randomness import Step
from tests.conftest import ROOT
from tests.models.test_weights import TripletNet
from tests.pretraining.test_trainer import SIDE, KilledError, Stripes

CPU = torch.device("cpu")
SETTINGS = load_params(ROOT / "params.yaml").pretrain.methods
TRAINED = [name for name in PRETEXTS if issubclass(PRETEXTS.settings(name), TrainedSettings)]


def _start(path: Path, state: dict[str, torch.Tensor]) -> EncoderStart:
    torch.save(state, path)
    return EncoderStart(weights=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> EncoderStart:
    torch.manual_seed(7)
    state = torchvision.models.resnet18(weights=None).state_dict()
    return _start(tmp_path_factory.mktemp("weights") / "resnet18.pth", state)


def _pretext(method: str, start: EncoderStart, **changes: Any) -> Any:
    torch.manual_seed(0)
    settings = replace(SETTINGS[method], weight_decay=0.0, batch_size=8, **changes)
    if hasattr(settings, "queue_size"):
        settings = replace(settings, queue_size=16)
    return PRETEXTS[method](
        start=start, patch_px=SIDE, mpps=(1.0, 2.0, 4.0), augmentation_prob=0.5, settings=settings
    )


def _moved(method: str, start: EncoderStart, **changes: Any) -> dict[str, float]:
    """How far the first step with a gradient moves each parameter that trains: the largest change of an element."""
    pretext = _pretext(method, start, **changes)
    network = pretext.network.train()
    optimizer = pretext.optimizer(network)
    patches, rows = Stripes(8, 1).patches[:, : len(pretext.mpps)], torch.arange(8)
    first = pretext.training_task(patches, rows, Step(0, 1, 1))
    with torch.no_grad():  # a queue of keys is empty before
        pretext.after_step(network(*first.inputs), first)
    before = {name: p.detach().clone() for name, p in network.named_parameters() if p.requires_grad}
    training_step(pretext, network, optimizer, pretext.training_task(patches, rows + 8, Step(0, 1, 2)), CPU)
    return {
        name: float((p.detach() - before[name]).abs().max())
        for name, p in network.named_parameters()
        if name in before
    }


@pytest.mark.parametrize("method", TRAINED)
def test_given_weights_move_at_their_own_rate_and_new_layers_at_the_other(
    method: str, resnet: EncoderStart
) -> None:
    """A first step is proportional to the rate: SGD and Adam from zero momentum, Lookahead before its slow step."""
    lr = SETTINGS[method].lr
    alike, apart = (_moved(method, resnet, lr_from_weights=rate) for rate in (lr, lr / 8))
    encoder = {name for name in alike if "encoder." in name}
    assert encoder
    assert encoder != set(alike)
    for name, distance in alike.items():
        expected = distance / 8 if name in encoder else distance
        assert apart[name] == pytest.approx(expected, rel=0.02, abs=1e-7), name


@pytest.mark.parametrize("method", TRAINED)
def test_random_weights_know_one_rate(method: str) -> None:
    pretext = _pretext(method, EncoderStart(), lr_from_weights=1e-9)
    groups = pretext.optimizer(pretext.network).param_groups
    assert [group["lr"] for group in groups] == [SETTINGS[method].lr]


def test_a_pair_mlp_of_the_file_moves_as_the_encoder_does(tmp_path: Path) -> None:
    torch.manual_seed(7)
    theirs = TripletNet()
    state = {f"module.{name}": tensor for name, tensor in theirs.state_dict().items()}
    rsp = _pretext("rsp", _start(tmp_path / "rsp.pth", state))
    new, given = rsp.optimizer(rsp.network).param_groups
    assert {id(p) for p in new["params"]} == {id(p) for p in rsp.network.head.parameters()}
    assert len(given["params"]) + len(new["params"]) == len(list(rsp.network.parameters()))
    assert given["lr"] == SETTINGS["rsp"].lr_from_weights


def _pretrain(pretext: Any, rates: TrainedSettings, **records: Any) -> PretrainResult:
    training, validation = Stripes(40, 1), Stripes(12, 2)
    return pretrain(
        pretext,
        patch_loader(training, EpochBatches(40, 8, seed=0), workers=0, pin=False),
        patch_loader(validation, EpochBatches(12, 6, seed=None), workers=0, pin=False),
        seed=0,
        device=CPU,
        records=Records(**records),
        rates=rates,
    )


@pytest.mark.parametrize("freezes", [True, False])
@pytest.mark.parametrize("method", TRAINED)
def test_frozen_batchnorms_of_the_encoder_keep_the_statistics_of_the_file(
    method: str, resnet: EncoderStart, freezes: bool
) -> None:
    pretext = _pretext(method, resnet, epochs=1)
    assert resnet.weights is not None
    given = torch.load(resnet.weights)
    offsets = len(SETTINGS[method].offsets) * len(pretext.mpps)
    training, validation = Stripes(16, 1), Stripes(8, 2)
    for stripes in (training, validation):
        stripes.patches = stripes.patches[:, :offsets]
    pretrain(
        pretext,
        patch_loader(training, EpochBatches(16, 8, seed=0), workers=0, pin=False),
        patch_loader(validation, EpochBatches(8, 8, seed=None), workers=0, pin=False),
        seed=0,
        device=CPU,
        records=Records(),
        freezes_batchnorm=freezes,
    )
    state = pretext.encoder_state()
    statistics = [name for name in given if "running_" in name or "num_batches" in name]
    assert len(statistics) == 60  # twenty layers
    for name in statistics:
        assert torch.equal(state[f"encoder.trunk.{name}"], given[name]) == freezes, name
    assert not torch.equal(state["encoder.trunk.bn1.weight"], given["bn1.weight"])


@pytest.mark.parametrize(
    ("param", "weights", "frozen"),
    [(None, True, True), (None, False, False), (True, False, True), (False, True, False)],
)
def test_batchnorms_of_given_weights_are_frozen_where_the_param_is_null(
    resnet: EncoderStart, param: bool | None, weights: bool, frozen: bool
) -> None:
    pretext = _pretext("moco", resnet if weights else EncoderStart())
    params = load_params(ROOT / "params.yaml")
    assert params.pretrain.freeze_batchnorm is None
    changed = replace(params, pretrain=replace(params.pretrain, freeze_batchnorm=param))
    assert freezes_batchnorm(pretext, changed) == frozen


def test_rates_rise_and_fall_and_a_killed_run_goes_on_with_the_same(
    tmp_path: Path, resnet: EncoderStart
) -> None:
    """Two epochs of five steps, the warm-up over the first two: rates after each epoch by hand."""
    changes = {"epochs": 2, "warmup": 0.2, "lr": 0.01, "lr_from_weights": 0.002}
    rates = replace(SETTINGS["rsp"], **changes)
    whole = _pretext("rsp", resnet, **changes)
    result = _pretrain(whole, rates)
    cosine = [0.01 * (1 + math.cos(math.pi * (step - 2) / (11 - 2))) / 2 for step in (5, 10)]
    assert [row["lr"] for row in result.curves] == pytest.approx(cosine)

    killed, steps = _pretext("rsp", resnet, **changes), 0

    def fail_in_epoch_two(outputs: Any, task: Task) -> None:
        nonlocal steps
        steps += 1
        if steps == 7:
            raise KilledError

    killed.after_step = fail_in_epoch_two
    with pytest.raises(KilledError):
        _pretrain(killed, rates, resume=tmp_path / "state.pt")
    again = _pretext("rsp", resnet, **changes)
    assert _pretrain(again, rates, resume=tmp_path / "state.pt").curves == result.curves
    for name, value in whole.network.state_dict().items():
        assert torch.equal(again.network.state_dict()[name], value), name


def test_a_constant_rate_is_the_default_of_both_files() -> None:
    for file in ("params.yaml", "params/paper.yaml"):
        methods = load_params(ROOT / file).pretrain.methods
        constant = {name for name, section in methods.items() if getattr(section, "warmup", 0) is None}
        assert constant == {"vae", "moco", "rsp", "rsp_moco"} & set(methods)
