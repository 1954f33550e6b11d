"""Trained layers of a fine-tuning: all, the last stage, or low-rank adapters."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn

from histo_monai.models.batchnorm import freeze_statistics
from histo_monai.models.encoder import Encoder, on_meta
from histo_monai.models.layers import LowRankLinear
from histo_monai.models.task_model import TaskModel

_LOG = logging.getLogger(__name__)

Mode = Literal["all", "last", "adapters"]
FixedStatistics = Literal["none", "frozen", "all"]
"""Batch-norms whose statistics training does not change."""
RANK = 8
"""Rank of the adapters."""
_SERIES = ("blocks", "stages", "layers", "features")
"""Names of sequences of blocks or stages in torchvision and timm."""


def add_adapters(model: TaskModel, mode: Mode, seed: int) -> None:
    """In the mode "adapters", add an adapter to each linear layer of a transformer's blocks.

    B is 0, so training starts from the network. Layers with weights that their block reads without a call stay.
    """
    if mode != "adapters":
        return
    generator = torch.Generator().manual_seed(seed % 2**63)
    layers = _linear_layers(model.encoder.trunk)
    called = _called(model.encoder, layers)
    if len(called) < len(layers):
        _LOG.warning(
            "finetune: %d of %d linear layers of %s have no adapter: their block reads their weights without a call",
            len(layers) - len(called),
            len(layers),
            model.encoder.name,
        )
    for layer in called:
        num_out, num_in = layer.weight.shape
        rank = min(RANK, num_out, num_in)
        down = torch.empty(rank, num_in).uniform_(-1, 1, generator=generator)
        LowRankLinear.of(
            layer, (down * (3 / num_in) ** 0.5).to(layer.weight), layer.weight.new_zeros(num_out, rank)
        )


def _called(encoder: Encoder, layers: Sequence[nn.Linear]) -> list[nn.Linear]:
    """Layers that a forward pass calls."""
    called: set[nn.Module] = set()
    hooks = [layer.register_forward_hook(lambda layer, *_: called.add(layer)) for layer in layers]
    on_meta(encoder, encoder.side_px or encoder.img_px)
    for hook in hooks:
        hook.remove()
    return [layer for layer in layers if layer in called]


@torch.no_grad()
def share_inputs(start: TaskModel, model: TaskModel) -> None:
    """Set A of a start's adapters to a trained model's; with B = 0 the start predicts as before.

    Interpolation from W + B A to W is then a factor of B.
    """
    for before, after in zip(start.modules(), model.modules(), strict=True):
        if isinstance(before, LowRankLinear) and isinstance(after, LowRankLinear):
            before.lora_down.copy_(after.lora_down)


def freeze(model: TaskModel, mode: Mode) -> None:
    """Freeze the encoder except for the layers of the mode; the head always trains.

    "last": the last stage or block and the layers after it. "adapters": the adapters of transformers; networks without
    linear layers in their blocks train batch-norms and the last stage.
    """
    if mode == "all":
        return
    trunk = model.encoder.trunk
    trunk.requires_grad_(False)
    adapted = [module for module in trunk.modules() if isinstance(module, LowRankLinear)]
    if mode == "adapters" and adapted:
        for layer in adapted:
            layer.lora_down.requires_grad_(True)
            layer.lora_up.requires_grad_(True)
        return
    for part in last_stage(trunk):
        part.requires_grad_(True)
    if mode == "adapters":
        for module in trunk.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.requires_grad_(True)


def fix_statistics(model: TaskModel, which: FixedStatistics) -> None:
    """Put batch-norms of the encoder, all or those that do not train, into evaluation mode, with fixed statistics."""
    if which == "all":
        freeze_statistics(model.encoder)
    if which != "frozen":
        return
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
    return [module for row in rows for module in row.modules() if type(module) is nn.Linear]
