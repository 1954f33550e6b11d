"""Trained layers of a fine-tuning: all, the last stage, or low-rank adapters."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn
from torch.nn.utils import parametrize

from histo_monai.models.task_model import TaskModel

Mode = Literal["all", "last", "adapters"]
RANK = 8
"""Rank of the adapters."""
_SERIES = ("blocks", "stages", "layers", "features")
"""Names of sequences of blocks or stages in torchvision and timm."""


class LowRank(nn.Module):
    """Weight plus a product of two thin matrices, W + B A (LoRA, Hu et al. 2022; alpha equals the rank).

    Args:
        weight: W, Shape (out, in).
        generator: of the random A; B is 0, so training starts from W.
    """

    def __init__(self, weight: torch.Tensor, generator: torch.Generator) -> None:
        super().__init__()
        rank = min(RANK, *weight.shape)
        down = torch.empty(rank, weight.shape[1]).uniform_(-1, 1, generator=generator)
        self.down = nn.Parameter((down * (3 / weight.shape[1]) ** 0.5).to(weight))
        self.up = nn.Parameter(weight.new_zeros(weight.shape[0], rank))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """W -> W + B A."""
        return weight + self.up @ self.down


def add_adapters(model: TaskModel, mode: Mode, seed: int) -> None:
    """In the mode "adapters", add an adapter to each linear layer of a transformer's blocks."""
    if mode != "adapters":
        return
    generator = torch.Generator().manual_seed(seed % 2**63)
    for layer in _linear_layers(model.encoder.trunk):
        parametrize.register_parametrization(layer, "weight", LowRank(layer.weight, generator))


def merge_adapters(model: TaskModel) -> None:
    """Merge adapters into their weights and unfreeze all layers; layers and names are the architecture's again."""
    for layer in list(model.encoder.trunk.modules()):
        if parametrize.is_parametrized(layer, "weight"):
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
            layer._parameters["bias"] = layer._parameters.pop("bias")  # after the weight, as in other models
    model.requires_grad_(True)


def freeze(model: TaskModel, mode: Mode) -> None:
    """Freeze the encoder except for the layers of the mode; the head always trains.

    "last": the last stage or block and the layers after it. "adapters": the adapters of transformers; networks without
    linear layers in their blocks train batch-norms and the last stage.
    """
    if mode == "all":
        return
    trunk = model.encoder.trunk
    trunk.requires_grad_(False)
    adapters = [module for module in trunk.modules() if isinstance(module, LowRank)]
    if mode == "adapters" and adapters:
        for adapter in adapters:
            adapter.requires_grad_(True)
        return
    for part in last_stage(trunk):
        part.requires_grad_(True)
    if mode == "adapters":
        for module in trunk.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.requires_grad_(True)


def keep_statistics(model: TaskModel) -> None:
    """Put batch-norms that do not train into evaluation mode: published statistics stay, in training too."""
    for module in model.encoder.trunk.modules():
        trains = any(part.requires_grad for part in module.parameters(recurse=False))
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not trains:
            module.eval()


def last_stage(trunk: nn.Module) -> list[nn.Module]:
    """The last stage or block of a trunk, and the layers after it."""
    parts: list[nn.Module] = []
    last = 0
    for name, part in trunk.named_children():
        if not any(True for _ in part.parameters()):
            continue
        inner = list(part.children()) if name in _SERIES else [part]
        parts += inner
        if name in _SERIES or isinstance(part, nn.Sequential):
            last = len(parts) - 1
    return parts[last:]


def _linear_layers(trunk: nn.Module) -> list[nn.Linear]:
    rows = [part for name, part in trunk.named_children() if name in _SERIES]
    return [module for row in rows for module in row.modules() if isinstance(module, nn.Linear)]
