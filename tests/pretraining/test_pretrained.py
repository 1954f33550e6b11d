from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision

from histo_monai.models.checkpoint import save_model
from histo_monai.models.heads.pairs import PairMLP
from histo_monai.models.start import EncoderStart
from histo_monai.models.task_model import from_encoder
from histo_monai.pipeline.params import load_params
from histo_monai.pretraining import PRETEXTS
from histo_monai.pretraining.pretrained import Pretrained
from histo_monai.pretraining.random import Random
from histo_monai.pretraining.settings import PretrainedSettings
from tests.models.test_weights import TripletNet

PX = 32
COMMON: dict[str, Any] = {"patch_px": PX, "mpps": (1.0, 2.0, 4.0), "augmentation_prob": 0.5}
NONE = PretrainedSettings()


def _start(path: Path, state: dict[str, torch.Tensor]) -> EncoderStart:
    torch.save(state, path)
    return EncoderStart(weights=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest(), license="MIT")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> EncoderStart:
    torch.manual_seed(7)
    state = torchvision.models.resnet18(weights=None).state_dict()
    return _start(tmp_path_factory.mktemp("weights") / "resnet18.pth", state)


@pytest.mark.parametrize("method", PRETEXTS)
def test_every_method_but_random_starts_from_the_weights(
    method: str, start: EncoderStart, root: Path
) -> None:
    settings = load_params(root / "params.yaml").pretrain.methods
    torch.manual_seed(0)
    pretext = PRETEXTS[method](start=start, **COMMON, settings=settings[method])
    torch.manual_seed(0)
    random = Random(start=EncoderStart(), **COMMON, settings=settings["random"])
    untouched = random.encoder_state()
    given = torch.load(start.weights)
    state = pretext.encoder_state()
    expected = untouched["encoder.trunk.conv1.weight"] if method == "random" else given["conv1.weight"]
    assert torch.equal(state["encoder.trunk.conv1.weight"], expected)
    weights = pretext.description()["encoder"]["weights"]
    assert weights == (None if method == "random" else {"sha256": start.sha256, "license": "MIT"})


def _fine_tuned(pretext: Pretrained | Random, folder: Path) -> Any:
    about = {"kind": "encoder", "method": "pretrained", "source": "", "corpus": ""}
    save_model(folder / "encoder.safetensors", pretext.encoder_state(), {**about, **pretext.description()})
    return from_encoder(folder / "encoder.safetensors", 2)


def test_pretrained_gets_a_linear_head_and_its_record_goes_on(start: EncoderStart, tmp_path: Path) -> None:
    model, description = _fine_tuned(Pretrained(start=start, **COMMON, settings=NONE), tmp_path)
    assert type(model.head).__name__ == "LinearHead"
    assert torch.equal(model.encoder.trunk.conv1.weight, torch.load(start.weights)["conv1.weight"])
    assert description["encoder"]["weights"] == {"sha256": start.sha256, "license": "MIT"}


def test_the_pair_mlp_of_published_rsp_weights_reaches_the_head(tmp_path: Path) -> None:
    torch.manual_seed(7)
    theirs = TripletNet()
    state = {f"module.{name}": tensor for name, tensor in theirs.state_dict().items()}
    pretrained = Pretrained(start=_start(tmp_path / "rsp.pth", state), **COMMON, settings=NONE)
    model, _ = _fine_tuned(pretrained, tmp_path)
    assert isinstance(model.head.pair_mlp, PairMLP)
    features = torch.rand(2, 512)
    expected = theirs.fc(torch.cat([features, features], dim=1))
    torch.testing.assert_close(model.head.pair_mlp(features, features), expected)


def test_without_a_file_the_error_states_where_to_put_one() -> None:
    with pytest.raises(ValueError, match=r"encoder\.weights.*data/weights"):
        Pretrained(start=EncoderStart(), **COMMON, settings=NONE)
