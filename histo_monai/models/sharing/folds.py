"""Models of folds: their files hold what differs from the model with all labels, one folder up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import safetensors
import torch
from torch import nn

from histo_monai.models.checkpoint import load_model, read_description
from histo_monai.models.layers import DOWN, UP, LowRankLinear
from histo_monai.utils.errors import InputError
from histo_monai.utils.roles import MODEL_FILE

WHOLE_MODEL = "whole_model_sha256"
"""Key of a fold's model that holds its head or adapters alone: SHA-256 of the model with the rest, one folder up."""
ENCODER_PREFIX = "encoder."


class WholeModel(NamedTuple):
    """File of a model with all labels; models of its folds share the memory of `state`.

    Attributes:
        state: tensors by name.
    """

    path: Path
    state: Mapping[str, torch.Tensor]
    description: Mapping[str, Any]

    @classmethod
    def read(
        cls, path: Path, placed: Callable[[Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]]
    ) -> Self:
        """Content of a file.

        Args:
            placed: puts the tensors on their device, in its memory order.

        Raises:
            InputError: the file is missing or damaged.
        """
        state, description = load_model(path)
        return cls(path, placed(state), description)

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return next(iter(self.state.values())).device


def adapted_layers(names: Iterable[str]) -> list[str]:
    """Layers with an adapter."""
    return [name.removesuffix(UP) for name in names if name.endswith(UP)]


def head_alone(
    state: Mapping[str, torch.Tensor], whole: Path
) -> tuple[Mapping[str, torch.Tensor], dict[str, str]]:
    """Tensors of a fold's model without those of the frozen encoder, and what its description then needs.

    The models of all folds have the encoder of the model with all labels, which may be gigabytes. A fold's model keeps
    its encoder where that model uses other depths.

    Args:
        state: tensors of a fold's model.
        whole: saved model with all labels, in the folder above the fold's model.
    """
    with safetensors.safe_open(whole, "pt") as file:
        held = set(file.keys())
    head = {name: tensor for name, tensor in state.items() if not name.startswith(ENCODER_PREFIX)}
    if not state.keys() - head.keys() <= held:
        return state, {}
    return head, {WHOLE_MODEL: read_description(whole.with_suffix(".json"))["sha256"]}


def adapters_alone(
    model: nn.Module, whole: nn.Module, path: Path
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors of a fold's model with adapters, without the frozen ones, and what its description then needs.

    Adapters in the file are relative to the model with all labels, whose own adapters are merged: W + B A is
    (W + B' A') + [B, -B'] [A; A'].

    Args:
        whole: the model with all labels; both models share frozen parameters.
        path: its file.
    """
    held, layers = whole.state_dict(), dict(whole.named_modules())
    state = model.state_dict()
    own = {
        name: tensor
        for name, tensor in state.items()
        if name not in held or tensor.data_ptr() != held[name].data_ptr()
    }
    for name, layer in model.named_modules():
        if not isinstance(layer, LowRankLinear):
            continue
        other = layers.get(name)
        if f"{name}.weight" in own:
            del own[name + DOWN], own[name + UP]
            own[f"{name}.weight"] = layer.merged()
        elif isinstance(other, LowRankLinear):
            own[name + DOWN] = torch.cat([layer.lora_down, other.lora_down]).detach()
            own[name + UP] = torch.cat([layer.lora_up, -other.lora_up], dim=1).detach()
    return own, {WHOLE_MODEL: read_description(path.with_suffix(".json"))["sha256"]}


def with_encoder(
    state: Mapping[str, torch.Tensor], description: Mapping[str, Any], wanted: Collection[str], path: Path
) -> Mapping[str, torch.Tensor]:
    """Tensors of a model's file, with those of the encoder that a fold's model shares with the one a folder up.

    Args:
        wanted: names of the network's tensors.

    Raises:
        InputError: that model is missing, damaged or another one.
    """
    if WHOLE_MODEL not in description:
        return state
    whole = path.absolute().parent.parent / MODEL_FILE
    held, _ = load_model(whole)
    check_whole(description, path, whole)
    own = dict(state)
    for layer in adapted_layers(state):
        weight = f"{layer}.weight"
        own[weight] = held.pop(weight).addmm_(own.pop(layer + UP), own.pop(layer + DOWN))
    return {name: held[name] for name in wanted if name.startswith(ENCODER_PREFIX) and name in held} | own


def check_whole(description: Mapping[str, Any], path: Path, whole: Path) -> None:
    """Refuse a fold's model that belongs to another model with all labels."""
    sha256 = description.get(WHOLE_MODEL)
    if sha256 is not None and read_description(whole.with_suffix(".json"))["sha256"] != sha256:
        raise InputError(
            f"{path}: a part of a model, whose encoder was in another {whole}. Fix: run the stage that makes both."
        )
