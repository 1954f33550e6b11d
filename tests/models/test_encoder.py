from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import nn

from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder, encoder_from
from histo_monai.models.encoders.architectures import ENCODERS, Architecture
from histo_monai.models.encoders.color import stain_histograms
from histo_monai.models.heads.pairs import PairMLP
from histo_monai.models.heads.task import LinearHead
from histo_monai.models.settings import COLOR, FIELD
from histo_monai.models.shared_backbone import SharedBackbone, folded
from histo_monai.models.task_model import (
    TaskModel,
    describe_task_model,
    first_stages,
    from_encoder,
    from_task_model,
)
from histo_monai.models.teacher_student import TeacherStudent
from histo_monai.pretraining.momentum import MomentumContrast
from histo_monai.pretraining.orders import RSPNetwork
from histo_monai.pretraining.vae import VAENetwork

PX = 32
NAMES = {"test_vit": 64, "test_resnet": 96, "test_efficientnet": 256}
"""Of timm: a transformer of one image size, a ResNet, and batch-norms with activations."""


def _patches(num: int = 2, px: int = PX) -> torch.Tensor:
    return torch.rand(num, 3, px, px, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("name", "num_features"), [("resnet50", 2048), *NAMES.items()])
def test_the_number_of_features_reaches_every_head(name: str, num_features: int) -> None:
    assert build_encoder(name, PX).num_features == num_features
    patches = _patches()
    for head in ("pair", "linear"):
        model = TaskModel(build_encoder(name, PX), head, 3)
        assert model(patches).shape == (2, 3)
        student = TeacherStudent(model).train()
        assert student.features(patches).shape == (2, num_features)
    assert RSPNetwork(build_encoder(name, PX))(
        _patches(6).unflatten(0, (2, 3)), torch.zeros(2, 1).long()
    ).shape == (
        2,
        1,
        6,
    )
    decoded = VAENetwork(build_encoder(name, PX), PX, 2)(patches, torch.zeros(2, 512))
    assert decoded.images.shape == patches.shape
    queries, keys = MomentumContrast(build_encoder(name, PX), 8, 0.9)(patches, patches)
    assert queries.shape == keys.shape == (2, 128)


@pytest.mark.parametrize("name", NAMES)
def test_models_with_one_trunk_give_what_they_give_alone(name: str) -> None:
    torch.manual_seed(0)
    model = TaskModel(build_encoder(name, PX), "linear", 3)
    with torch.no_grad():
        for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)
        shared = SharedBackbone({"a": model, "b": TaskModel(build_encoder("resnet18", PX), "linear", 3)})
        expected = model.eval()(_patches())
        torch.testing.assert_close(
            shared(_patches())["a"], expected, rtol=1e-4, atol=1e-4 * expected.abs().max()
        )
    assert len(shared.backbones) == 2
    if name == "test_resnet":
        assert not any(isinstance(module, nn.BatchNorm2d) for module in shared.modules())


def test_a_trunk_that_cannot_be_traced_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODERS, "branching", Architecture(lambda px: Branching()))
    model = TaskModel(build_encoder("branching", PX), "linear", 2)
    shared = SharedBackbone({"a": model})
    assert any(isinstance(module, nn.BatchNorm2d) for module in shared.modules())
    with torch.no_grad():
        assert torch.equal(shared(_patches())["a"], model.eval()(_patches()))


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 7, 3), nn.BatchNorm2d(7))

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        features = self.layers(patches).mean(dim=(2, 3))
        return features if patches.device.type == "meta" or patches.sum() > 0 else -features


def test_an_encoder_of_your_own_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        ENCODERS, "own", Architecture(lambda px: Branching(), mean=(0.1,) * 3, std=(0.2,) * 3)
    )
    model = TaskModel(build_encoder("own", PX), "pair", 2)
    assert model.encoder.num_features == 7
    assert model(_patches()).shape == (2, 2)


def test_features_are_those_of_torchvision_and_timm_from_the_same_seed() -> None:
    torch.manual_seed(0)
    theirs = torchvision.models.resnet34(weights=None)
    theirs.fc = nn.Identity()
    torch.manual_seed(0)
    ours = build_encoder("resnet34", PX, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    normalized = torchvision.transforms.functional.normalize(_patches(), [0.1, 0.2, 0.3], [0.5, 0.6, 0.7])
    assert torch.equal(ours.eval()(_patches()), theirs.eval()(normalized))
    torch.manual_seed(0)
    vit = timm.create_model("test_vit", pretrained=False, num_classes=0, img_size=PX)
    torch.manual_seed(0)
    assert torch.equal(build_encoder("test_vit", PX).eval()(_patches()), vit.eval()(2 * _patches() - 1))


def test_a_small_transformer_takes_the_patches_it_was_built_for_and_no_others() -> None:
    encoder = build_encoder("vit_tiny_patch16_224", 64)
    assert encoder.num_features == 192
    assert encoder(_patches(px=64)).shape == (2, 192)
    with pytest.raises(ValueError, match="patches of 96 x 96 px, but it was built for 64 px") as caught:
        encoder(_patches(px=96))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "px", "line"),
    [
        (
            "resnet19",
            PX,
            "'resnet19' is no published encoder, no ResNet of torchvision and no name of timm. Fix: name",
        ),
        ("vit_tiny_patch16_225", PX, "Fix: name 'vit_tiny_patch16_224'"),
        ("hf-hub:somebody/something", PX, "no name of timm"),
        ("local-dir:/tmp", PX, "no name of timm"),
        ("", PX, "no name of timm"),
        ("vit_tiny_patch16_224.nothing", 64, "nothing"),
        ("vit_tiny_patch16_224", 40, "gives no features of patches of 40 px .* set patch_px"),
        ("maps", PX, "its output is not one vector for each patch"),
    ],
)
def test_a_name_or_a_side_that_cannot_be_is_one_line(
    name: str, px: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENCODERS, "maps", Architecture(lambda px: nn.Conv2d(3, 5, 3)))
    with pytest.raises(ValueError, match=line) as caught:
        build_encoder(name, px)
    assert "\n" not in str(caught.value)
    assert "encoder.name" in str(caught.value)


def test_nothing_is_looked_for_outside_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    for name in (*NAMES, "vit_tiny_patch16_224.augreg_in21k"):
        build_encoder(name, PX)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_built_again_from_its_description_alone(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = build_encoder(name, PX, mean=(0.1, 0.2, 0.3), std=(0.7, 0.8, 0.9))
    encoder.weights = {"sha256": "ab", "license": "CC BY 4.0"}
    model = TaskModel(encoder, "linear", 2)
    about = encoder.description(architecture="", head="linear", patch_px=PX, mpps=[0.5])
    about |= {"method": "pretrained", "source": "raw", "corpus": "own"}
    described = describe_task_model(about, classes=["a", "b"], patch_px=PX, mpp=0.5)
    save_model(tmp_path / "model.safetensors", model.state_dict(), described)
    loaded, description = from_task_model(tmp_path / "model.safetensors")
    assert torch.equal(loaded.eval()(_patches()), model.eval()(_patches()))
    assert isinstance(loaded.head, LinearHead)
    assert loaded.encoder.description(architecture="", head="linear", patch_px=PX, mpps=[0.5]) == {
        key: about[key] for key in ("architecture", "head", "patch_px", "mpps", "encoder")
    }
    assert description["encoder"] == {
        "name": name,
        "img_px": PX,
        "num_features": NAMES[name],
        "mean": [0.1, 0.2, 0.3],
        "std": [0.7, 0.8, 0.9],
        "weights": {"sha256": "ab", "license": "CC BY 4.0"},
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("name", value) for value in (None, "", 18, ["resnet18"], "resnet19", "hf-hub:a/b", "resnet34")),
        *(("img_px", value) for value in (None, 0, 16, 10**6, "32", 32.0, True)),
        *(("num_features", value) for value in (None, 0, 511, 10**9, 512.0, "512")),
        *(("mean", value) for value in (None, [0.5], [0.5] * 4, ["0.5"] * 3, 0.5, [float("nan")] * 3)),
        *(("std", value) for value in (None, [0.0] * 3, [-1, 1, 1], [float("inf")] * 3)),
        *(("stages", value) for value in (0, 1, 4, -1, "1", 1.0, True)),
        *(
            ("earlier_stages", value)
            for value in (1, [0], [1], [2, 1], [1, 1], ["1"], [True], [9], [-1], [-2])
        ),
        *(("weights", value) for value in (..., "a", {}, {"sha256": 1, "license": None}, {"sha256": "a"})),
    ],
)
def test_a_description_of_an_encoder_that_lies_is_one_line(key: str, value: Any, tmp_path: Path) -> None:
    encoder = build_encoder("resnet18", PX)
    about = encoder.description(architecture="", head="linear", patch_px=PX, mpps=[1.0])
    about |= {"method": "random", "source": "raw", "corpus": "own"}
    described = describe_task_model(about, classes=None, patch_px=PX, mpp=1.0)
    lying = {name: x for name, x in (described["encoder"] | {key: value}).items() if x is not ...}
    path = tmp_path / "model.safetensors"
    save_model(path, TaskModel(encoder, "linear", 1).state_dict(), described | {"encoder": lying})
    with pytest.raises(ValueError, match=r"model\.(json|safetensors): ") as caught:
        from_task_model(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_the_first_stages_give_mean_and_deviation_of_the_maps_of_torchvision(stages: int) -> None:
    torch.manual_seed(0)
    encoder = build_encoder("resnet18", PX).eval()
    network = torchvision.models.resnet18()
    network.load_state_dict(encoder.trunk.state_dict(), strict=False)
    network.eval()
    patches = _patches(3)
    ends = encoder.stage_features(patches)
    assert torch.equal(ends[-1], encoder(patches))
    tensors = set(encoder.state_dict())
    encoder.end_after(stages)
    assert not encoder.training
    assert not encoder.trunk.training
    assert set(encoder.state_dict()) < tensors
    found = encoder(patches)
    assert torch.equal(found, ends[stages - 1])
    x = network.maxpool(network.relu(network.bn1(network.conv1((patches - 0.5) / 0.5))))
    for part in (network.layer1, network.layer2, network.layer3)[:stages]:
        x = part(x)
    maps, found = x.detach().numpy(), found.detach()
    channels = maps.shape[1]
    assert found.shape == (3, 2 * channels) == (3, encoder.num_features)
    for row in range(3):
        for channel in range(channels):
            assert float(found[row, channel]) == pytest.approx(maps[row, channel].mean(), abs=1e-5)
            deviation = float(np.sqrt(maps[row, channel].var() + 1e-4))
            assert float(found[row, channels + channel]) == pytest.approx(deviation, abs=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(folded(encoder)(patches), found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "depths", [(1, None), (2, 1), (3, 1, 2), (None,), (2,), (None, COLOR), (2, COLOR, 1)]
)
def test_several_depths_in_one_pass_are_the_stages_side_by_side(depths: tuple[int | None, ...]) -> None:
    torch.manual_seed(0)
    encoder = build_encoder("resnet18", PX).eval()
    patches = _patches(3)
    with torch.no_grad():
        *stages, whole = encoder.stage_features(patches)
        ordered = sorted(depths, key=lambda depth: depth or 9)
        levels = (patches * 255).round().long()
        given = {None: whole, COLOR: stain_histograms(levels).float()}
        expected = [given[depth] if depth in given else stages[depth - 1] for depth in ordered]
        encoder.end_at(depths)
        assert not any(module.training for module in encoder.modules())
        assert encoder.depths == tuple(ordered)
        assert encoder.widths == tuple(part.shape[1] for part in expected)
        assert torch.equal(encoder(patches), torch.cat(expected, dim=1))
        if None not in depths:
            assert not [name for name in encoder.state_dict() if f"layer{max(ordered) + 1}" in name]
        fused = folded(encoder)
        assert not [module for module in fused.modules() if type(module) is torch.nn.BatchNorm2d]
        torch.testing.assert_close(fused(patches), encoder(patches), rtol=1e-4, atol=1e-5)
        about = encoder.description(architecture="", head="", patch_px=PX, mpps=[])["encoder"]
        again = encoder_from(about).eval()
        again.load_state_dict(encoder.state_dict())
        assert torch.equal(again(patches), encoder(patches))
        assert again.about() == encoder.about() == json.loads(json.dumps(about))


@pytest.mark.parametrize("side_px", [None, 48])
@pytest.mark.parametrize("depths", [(None, FIELD), (1, None, FIELD, COLOR), (2, FIELD), (None,)])
def test_the_field_is_resized_and_the_middle_is_the_patch(
    depths: tuple[int | None, ...], side_px: int | None
) -> None:
    torch.manual_seed(0)
    encoder = build_encoder("resnet18", PX, side_px=side_px).eval()
    fields = _patches(3, 2 * PX)
    middle = fields[:, :, PX // 2 : PX // 2 + PX, PX // 2 : PX // 2 + PX]
    whole = torch.nn.functional.interpolate(fields, (side_px or PX,) * 2, mode="bilinear", antialias=True)
    with torch.no_grad():
        of_patch = [depth for depth in depths if depth != FIELD]
        encoder.end_at(of_patch)
        expected = [encoder(middle)]
        if FIELD in depths:
            expected.insert(0, encoder(whole)[:, -encoder.widths[-1] :])
        again = build_encoder("resnet18", PX, side_px=side_px)
        again.end_at(depths)
        again.field = 2
        again.load_state_dict(encoder.state_dict())
        torch.testing.assert_close(again.eval()(fields), torch.cat(expected, dim=1))
        assert sum(again.widths) == again.num_features == again(fields).shape[1]
        copy = encoder_from(json.loads(json.dumps(again.about()))).eval()
        copy.load_state_dict(again.state_dict())
        assert torch.equal(copy(fields), again(fields))
        torch.testing.assert_close(folded(again)(fields), again(fields), rtol=1e-4, atol=1e-5)


def test_a_model_of_the_first_stages_comes_back_from_its_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = build_encoder("resnet18", PX)
    about = encoder.description(architecture="", head="pair", patch_px=PX, mpps=[0.5])
    about |= {"kind": "encoder", "method": "rsp", "source": "raw", "corpus": "own"}
    state = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    state |= {f"pair_mlp.{name}": tensor for name, tensor in PairMLP(512).state_dict().items()}
    save_model(tmp_path / "encoder.safetensors", state, about)
    model, description = first_stages(*from_encoder(tmp_path / "encoder.safetensors", 3), 2)
    assert description["head"] == "linear"
    assert description["encoder"]["stages"] == 2
    assert torch.equal(model.encoder(_patches()), encoder.stage_features(_patches())[1])
    described = describe_task_model(description, classes=["a", "b", "c"], patch_px=PX, mpp=0.5)
    save_model(tmp_path / "model.safetensors", model.state_dict(), described)
    loaded, _ = from_task_model(tmp_path / "model.safetensors")
    assert torch.equal(loaded.eval()(_patches()), model.eval()(_patches()))


@pytest.mark.parametrize(
    ("name", "stages", "mend"),
    [("resnet18", 4, "from 1 to 3"), ("resnet18", 0, "from 1 to 3"), ("test_vit", 1, "use its full depth")],
)
def test_an_end_that_an_encoder_does_not_have_is_one_line(name: str, stages: int, mend: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: has no stage {stages}. Fix: .*{mend}"):
        build_encoder(name, PX).end_after(stages)


def test_a_model_from_before_encoders_had_names_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"")
    path.with_suffix(".json").write_text(json.dumps({"kind": "task model", "num_features": 512, "format": 2}))
    with pytest.raises(ValueError, match=r"format 2.* reads 3.*run the stage"):
        from_task_model(path)


def test_an_encoder_from_a_description_starts_without_its_weights() -> None:
    about = build_encoder("test_vit", PX).description(architecture="", head="", patch_px=PX, mpps=[])
    torch.manual_seed(1)
    one = encoder_from(about["encoder"])
    torch.manual_seed(1)
    other = build_encoder("test_vit", PX)
    assert all(torch.equal(x, y) for x, y in zip(one.parameters(), other.parameters(), strict=True))
