"""Files of weights as torchvision, timm and published checkpoints write them; features against their own networks."""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import torchvision
from timm.models.vision_transformer import checkpoint_filter_fn
from torch import nn
from torchvision.transforms.functional import normalize

from histo_monai.models.encoder import Encoder
from histo_monai.models.encoders.published import IMAGENET_MEAN, IMAGENET_STD
from histo_monai.models.heads.pairs import PairMLP
from histo_monai.models.start import EncoderStart
from histo_monai.utils.files.tensors import read_tensors

PX = 32
State = dict[str, torch.Tensor]


def _patches(px: int = PX) -> torch.Tensor:
    return torch.rand(2, 3, px, px, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    """torchvision's, with a classifier and batch-norms that have seen images."""
    torch.manual_seed(1)
    network = torchvision.models.resnet18(weights=None)
    with torch.no_grad():
        network(torch.rand(8, 3, PX, PX))
    return network.eval()


def _features(resnet: nn.Module, patches: torch.Tensor) -> torch.Tensor:
    """What torchvision's own network hands to its classifier."""
    seen: list[torch.Tensor] = []
    hook = resnet.fc.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        resnet(patches)
    hook.remove()
    return seen[0]


def _save(path: Path, content: Any) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(content, path)
    else:
        torch.save(content, path)
    return path


def _start(path: Path, name: str = "resnet18", **settings: Any) -> EncoderStart:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return EncoderStart(name, path, **({"sha256": digest, "license": "CC BY 4.0"} | settings))


def _load(path: Path, name: str = "resnet18", px: int = PX, **settings: Any) -> Encoder:
    torch.manual_seed(2)
    return _start(path, name, **settings).build(px).encoder.eval()


def _under(prefix: str) -> Callable[[State], State]:
    return lambda state: {prefix + name: tensor for name, tensor in state.items()}


_POSITION = {"conv1": 0, "bn1": 1, "layer1": 4, "layer2": 5, "layer3": 6, "layer4": 7, "fc": 9}


def _by_position(prefix: str) -> Callable[[State], State]:
    return lambda state: {
        f"{prefix}{_POSITION[name.split('.')[0]]}.{name.partition('.')[2]}": x
        for name, x in state.items()
        if not name.startswith("fc.")
    }


LAYOUTS: dict[str, Callable[[State], Any]] = {
    "plain": lambda state: state,
    "without classifier": lambda state: {n: x for n, x in state.items() if not n.startswith("fc.")},
    "as torchvision wrote it in 2017": lambda state: {
        n: x for n, x in state.items() if "num_batches" not in n
    },
    **{
        f"below {prefix}": _under(prefix)
        for prefix in (
            *("module.", "model.", "backbone.", "encoder.", "resnet.", "model.resnet.", "_orig_mod."),
            *("module.backbone._orig_mod.", "teacher.", "student."),
        )
    },
    "by position": _by_position(""),
    "by position below a prefix": _by_position("backbone."),
    "lightning": lambda state: {"state_dict": _under("model.")(state), "epoch": 3},
    "lightning with numbers of numpy": lambda state: {
        "state_dict": _under("model.resnet.")(state),
        "best": [np.float64(0.5), np.float32(0.5), np.int64(3)],
        "epoch": np.int64(3),
    },
    "several processes": lambda state: {
        "model": _under("module.backbone.")(state),
        "args": argparse.Namespace(a=1),
    },
    "moco": lambda state: {
        "state_dict": _under("module.encoder_q.")(state)
        | _under("module.encoder_k.")({name: 2 * tensor for name, tensor in state.items()})
        | {"module.queue": torch.rand(4, 4), "module.queue_ptr": torch.zeros(1)}
    },
    "dino": lambda state: {
        "student": _under("module.backbone.")({name: 2 * tensor for name, tensor in state.items()}),
        "teacher": _under("backbone.")(state) | {"head.mlp.0.weight": torch.rand(3, 3)},
        "args": argparse.Namespace(arch="resnet18"),
    },
    "momentum encoder": lambda state: (
        _under("encoder.")({name: 2 * tensor for name, tensor in state.items()})
        | _under("momentum_encoder.")(state)
    ),
    "half precision": lambda state: {
        name: x.half() if x.is_floating_point() else x for name, x in state.items()
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_torchvisions_weights_give_torchvisions_features(
    layout: str, resnet: nn.Module, tmp_path: Path
) -> None:
    path = _save(tmp_path / "weights.pth", LAYOUTS[layout](resnet.state_dict()))
    with torch.no_grad():
        encoder = _load(path)(_patches())
    expected = _features(resnet, normalize(_patches(), IMAGENET_MEAN, IMAGENET_STD))
    accuracy = 2e-2 if layout == "half precision" else 0.0
    torch.testing.assert_close(encoder, expected, rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".ckpt", ".tar", ".bin"])
def test_every_kind_of_file_is_read(suffix: str, resnet: nn.Module, tmp_path: Path) -> None:
    encoder = _load(_save(tmp_path / f"weights{suffix}", resnet.state_dict()))
    assert torch.equal(encoder.trunk.conv1.weight, resnet.conv1.weight)


def test_timms_transformer_gives_timms_features(tmp_path: Path) -> None:
    torch.manual_seed(1)
    theirs = timm.create_model("test_vit", pretrained=False, img_size=PX, num_classes=5).eval()
    path = _save(tmp_path / "vit.safetensors", theirs.state_dict())
    with torch.no_grad():
        encoder = _load(path, "test_vit")(_patches())
        expected = theirs.forward_head(theirs.forward_features(2 * _patches() - 1), pre_logits=True)
    assert torch.equal(encoder, expected)


def test_positions_of_another_image_size_are_resampled_as_timm_does(tmp_path: Path) -> None:
    torch.manual_seed(1)
    large = timm.create_model("test_vit", pretrained=False, num_classes=0)
    path = _save(tmp_path / "vit.pt", {"state_dict": large.state_dict()})
    theirs = timm.create_model("test_vit", pretrained=False, num_classes=0, img_size=64)
    theirs.load_state_dict(checkpoint_filter_fn(large.state_dict(), theirs))
    with torch.no_grad():
        assert torch.equal(_load(path, "test_vit", px=64)(_patches(64)), theirs.eval()(2 * _patches(64) - 1))


class TripletNet(nn.Module):
    """The network of RSP's published code: a ResNet-18 called `model`, and `fc`, the pair MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.model = torchvision.models.resnet18(weights=None)
        self.model.fc = nn.Sequential()
        self.fc = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(True), nn.Linear(512, 256))

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.cat([self.model(first), self.model(second)], dim=1))


@pytest.mark.parametrize("prefix", ["", "module."])
def test_published_rsp_weights_bring_the_trunk_the_pair_mlp_and_pixels_of_0_to_255(
    prefix: str, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    theirs = TripletNet().eval()
    saved = {"args": argparse.Namespace(lr=0.01), "model": _under(prefix)(theirs.state_dict()), "epoch": 250}
    started = _start(_save(tmp_path / "rsp.pt", saved)).build(PX)
    pair_mlp = PairMLP(512)
    assert started.pair_mlp is not None
    pair_mlp.load_state_dict(started.pair_mlp)
    first, second = _patches(), _patches().flip(-1)
    encoder = started.encoder.eval()
    with torch.no_grad():
        pair = pair_mlp(encoder(first), encoder(second))
        torch.testing.assert_close(pair, theirs(255 * first, 255 * second), rtol=1e-4, atol=1e-3)


def test_an_encoder_of_this_project_brings_its_normalization_and_pair_mlp(tmp_path: Path) -> None:
    torch.manual_seed(1)
    theirs = EncoderStart(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)).build(PX).encoder.eval()
    pair_mlp = PairMLP(512)
    state = _under("encoder.")(theirs.state_dict()) | _under("pair_mlp.")(pair_mlp.state_dict())
    started = _start(_save(tmp_path / "encoder.safetensors", state)).build(PX)
    assert torch.equal(started.encoder.eval()(_patches()), theirs(_patches()))
    assert started.pair_mlp is not None
    assert all(torch.equal(started.pair_mlp[name], x) for name, x in pair_mlp.state_dict().items())


def test_mean_and_std_that_are_given_go_before_those_published(resnet: nn.Module, tmp_path: Path) -> None:
    path = _save(tmp_path / "weights.pt", resnet.state_dict())
    with torch.no_grad():
        encoder = _load(path, mean=(0.0,) * 3, std=(1.0,) * 3)(_patches())
    assert torch.equal(encoder, _features(resnet, _patches()))


def test_digest_and_license_are_in_the_description(resnet: nn.Module, tmp_path: Path) -> None:
    path = _save(tmp_path / "weights.pt", resnet.state_dict())
    about = _load(path).description(architecture="", head="linear", patch_px=PX, mpps=[1.0])["encoder"]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert about["weights"] == {"sha256": digest, "license": "CC BY 4.0"}
    assert about["mean"] == list(IMAGENET_MEAN)


def test_what_is_left_out_stands_in_the_log(
    resnet: nn.Module, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        _load(_save(tmp_path / "weights.pt", _under("module.")(resnet.state_dict())))
    assert "weights.pt tensors=120 prefix=module. skipped=2 (fc)" in caplog.text


class Runs:
    """Unpickled, it would make a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch owned",))


def _without(*names: str) -> Callable[[State], State]:
    return lambda state: {name: x for name, x in state.items() if not name.startswith(names)}


ODD: dict[str, tuple[Callable[[State], Any], str]] = {
    "one missing": (_without("layer4.1.bn2.bias"), r"1 \(layer4.1.bn2.bias\) missing, 0 left over"),
    "a block missing": (
        _without("layer4.1."),
        r"10 \(layer4.1.conv1.weight, .*\) missing, 0 left over",
    ),
    "half under one prefix, half under another": (
        lambda state: (
            _under("model.")(_without("layer1.")(state))
            | {f"module.{name}": x for name, x in state.items() if name.startswith("layer1.")}
        ),
        "missing",
    ),
    "one too many": (
        lambda state: state | {"layer4.2.conv1.weight": torch.zeros(1)},
        r"0 missing, 1 \(layer4.2.conv1.weight\) left over",
    ),
    "below an unknown prefix": (_under("model.tower."), r"without the prefix 'model\.tower\.'"),
    "below a word after known ones": (
        _under("module.backbone.tower."),
        r"without the prefix 'module\.backbone\.tower\.'",
    ),
    "another network": (lambda state: {"a.weight": torch.zeros(1)}, "missing, 1 .a.weight. left over"),
    "a wrong shape": (
        lambda state: state | {"conv1.weight": torch.zeros(64, 3, 3, 3)},
        r"shape or type differs for 1 \(conv1.weight \(64, 3, 3, 3\), not \(64, 3, 7, 7\)\)",
    ),
    "whole numbers": (lambda state: state | {"bn1.bias": torch.zeros(64).long()}, "shape or type differs"),
    "NaN": (
        lambda state: state | {"bn1.bias": torch.full((64,), float("nan"))},
        r"NaN or infinity in 1 \(bn1.bias",
    ),
    "no tensors": (lambda state: {"epoch": 3}, "holds no tensors by name"),
    "a list": (lambda state: list(state.values()), "holds no tensors by name"),
    "a tensor": (lambda state: state["bn1.bias"], "holds no tensors by name"),
    "code": (lambda state: {"state_dict": state, "run": Runs()}, r"posix\.system beside its tensors"),
    "a module": (lambda state: nn.Linear(2, 2), r"torch\.nn\.modules\.linear\.Linear beside its tensors"),
}


@pytest.mark.parametrize("case", ODD)
def test_a_file_that_does_not_fit_is_refused_in_one_line(
    case: str, resnet: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, line = ODD[case]
    path = _save(tmp_path / "weights.pth", make(resnet.state_dict()))
    with pytest.raises(ValueError, match=line) as caught:
        _load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert not Path("owned").exists()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


BROKEN: dict[str, Callable[[Path], object]] = {
    "half": _cut,
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("not found\n"),
    "a plain pickle with code": lambda path: path.write_bytes(pickle.dumps(Runs())),
    "zeros": lambda path: path.write_bytes(bytes(10_000)),
    "gone": Path.unlink,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a FIFO": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_refused_in_one_line(
    how: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = _save(tmp_path / f"weights{suffix}", {"a.weight": torch.rand(100, 100)})
    BROKEN[how](path)
    with pytest.raises(ValueError, match="weights") as caught:
        read_tensors(path)
    assert "\n" not in str(caught.value)
    assert not Path("owned").exists()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"weights\.h5: not a weights file.*\.safetensors"):
        EncoderStart(weights=tmp_path / "weights.h5").build(PX)


def test_the_file_is_the_one_that_params_mean(resnet: nn.Module, tmp_path: Path) -> None:
    path = _save(tmp_path / "weights.pt", resnet.state_dict())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert _load(path, sha256=digest.upper()).weights == {"sha256": digest, "license": "CC BY 4.0"}
    with pytest.raises(ValueError, match=f"SHA-256 is {digest}.*{'0' * 64}"):
        _load(path, sha256="0" * 64)
    with pytest.raises(ValueError, match=rf"encoder\.sha256 is not set.*{digest}"):
        _load(path, sha256=None)
