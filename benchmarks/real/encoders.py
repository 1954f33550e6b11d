"""The frozen encoders: ImageNet's EfficientNet-Lite0 of a pip package, a random ResNet-18, and files of the project."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from histo_monai.models.checkpoint import load_model, save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.encoders.packaged import package_file
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.tensors import Tensors
from histo_monai.utils.storage import file_sha256

IMAGENET, RANDOM = "imagenet", "random"
BUILT_IN = (RANDOM, IMAGENET)
ARCHITECTURE = "tf_efficientnet_lite0"
SMALL = "imagenet-128"
"""The same network at patches of 128 px: a third of the time."""
SIDES_PX = {RANDOM: 64, IMAGENET: 224, SMALL: 128}


def renamed(tensors: Mapping[str, torch.Tensor], names: Mapping[str, torch.Tensor]) -> Tensors:
    """The package's tensors under timm's names, without the classifier.

    Both networks list their layers in the order in which they run: convolution, then its batch-norm.

    Args:
        tensors: of the package's file, in its order.
        names: of timm's network without a classifier, in its order.
    """
    trunk = [tensor for name, tensor in tensors.items() if not name.startswith("_fc.")]
    return dict(zip(names, trunk, strict=True))


def write_encoder(name: str, folder: Path) -> Path:
    """Write one of `SIDES_PX` as an encoder.safetensors of the project, if it is not there; its path."""
    path = folder / name / "encoder.safetensors"
    if path.exists() and path.with_suffix(".json").exists():
        return path
    side = SIDES_PX[name]
    torch.manual_seed(0)
    weights = None
    if name != RANDOM:
        source = package_file()
        encoder = build_encoder(ARCHITECTURE, side)
        tensors = torch.load(source, map_location="cpu", weights_only=True)
        encoder.trunk.load_state_dict(renamed(tensors, encoder.trunk.state_dict()))
        weights = {"sha256": digest_of(source), "license": "Apache-2.0"}
        encoder.weights = weights
    else:
        encoder = build_encoder("resnet18", side)
    description = {
        "kind": "encoder",
        "method": RANDOM if weights is None else "pretrained",
        "seed": 0,
        **encoder.description(
            architecture=f"{encoder.name} trunk", head="linear", patch_px=side, mpps=[1.0, 2.0, 4.0]
        ),
        "source": "raw",
        "corpus": "none" if weights is None else "ImageNet",
    }
    state = {f"encoder.{key}": tensor for key, tensor in encoder.state_dict().items()}
    save_model(path, state, description)
    return path


@cache
def digest_of(path: Path) -> str:
    """SHA-256 of a file, read once."""
    return file_sha256(path)


@cache
def description_of(path: Path) -> dict[str, Any]:
    """The JSON beside an encoder; the tensors are checked against it.

    Raises:
        InputError: the file is no encoder.
    """
    description = load_model(path)[1]
    if description.get("kind") != "encoder":
        raise InputError(f"{path}: not an encoder. Fix: name the encoder.safetensors of a pretraining.")
    return description


def sides_of(description: Mapping[str, Any]) -> str:
    """Side of a patch in px, and the side it is resized to where that differs; part of what names features."""
    patch_px, side = description["patch_px"], description["encoder"].get("side")
    return str(patch_px) if side in (None, patch_px) else f"{patch_px}-to-{side}"


def keeps_statistics(description: Mapping[str, Any]) -> bool:
    """Whether its batch-norms keep their statistics, as the product's do: it is, or continues, weights of a file."""
    return bool(description["encoder"].get("weights"))
