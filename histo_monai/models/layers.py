"""Layers with torch's results, in a suitable precision or memory order."""

from __future__ import annotations

from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from torch import fx, nn


def at_full_precision(layers: nn.Module, *features: torch.Tensor) -> torch.Tensor:
    """Outputs of `layers` in the dtype of their weights, also under autocast.

    bfloat16 has 8 significant bits, too few for logits and scores.

    Args:
        layers: with parameters of one floating type, usually float32.
        features: of any floating type; bfloat16 from a backbone under autocast.
    """
    dtype = next(layers.parameters()).dtype
    with torch.autocast(features[0].device.type, enabled=False):
        outputs: torch.Tensor = layers(*(x.to(dtype) for x in features))
    return outputs


class MaxPool2d(nn.MaxPool2d):
    """`nn.MaxPool2d` with equal values and gradients, in a quarter to half of the time on a CPU.

    Input  (N, C, H, W), of any floating type
    Output as of `nn.MaxPool2d`, in the memory order of the input
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Maxima of a batch of maps."""
        return _max_pool(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


@fx.wrap
def _max_pool(x: torch.Tensor, *settings: Any) -> torch.Tensor:
    """Maxima by way of channels-last, for which torch has vector instructions."""
    if x.device.type != "cpu" or not x.is_contiguous():
        return F.max_pool2d(x, *settings)
    if x.requires_grad and torch.is_grad_enabled():
        pooled: torch.Tensor = _ThroughChannelsLast.apply(x, *settings)
        return pooled
    return F.max_pool2d(x.contiguous(memory_format=torch.channels_last), *settings).contiguous()


class _ThroughChannelsLast(torch.autograd.Function):
    """Forward pass in channels-last; backward in contiguous order, which is faster."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *settings: Any) -> torch.Tensor:
        ordered = x.contiguous(memory_format=torch.channels_last)
        pooled, places = F.max_pool2d_with_indices(ordered, *settings)
        ctx.save_for_backward(x, places.contiguous())
        ctx.settings = settings
        return pooled.contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, places = ctx.saved_tensors
        *sizes, ceil_mode = ctx.settings
        pairs = [(size, size) if isinstance(size, int) else size for size in sizes]
        back = torch.ops.aten.max_pool2d_with_indices_backward
        return back(gradients[0].contiguous(), x, *pairs, ceil_mode, places), *[None] * len(ctx.settings)


DOWN, UP = ".lora_down", ".lora_up"
"""Ends of the names of adapters in a state."""


class LowRankLinear(nn.Linear):
    """Linear layer plus a product of two thin matrices, (W + B A) x (LoRA, Hu et al. 2022; alpha equals the rank).

    The product is applied to features: W + B A is never stored.

    Attributes:
        lora_down: A, Shape (rank, in).
        lora_up: B, Shape (out, rank).
    """

    lora_down: nn.Parameter
    lora_up: nn.Parameter

    @classmethod
    def of(cls, layer: nn.Module, down: torch.Tensor, up: torch.Tensor) -> Self:
        """Turn an `nn.Linear` into one with an adapter, in place."""
        layer.__class__ = cls
        adapted = cast("Self", layer)
        adapted.lora_down, adapted.lora_up = nn.Parameter(down), nn.Parameter(up)
        return adapted

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Outputs, Shape (..., out)."""
        return super().forward(input) + F.linear(F.linear(input, self.lora_down), self.lora_up)

    @torch.no_grad()
    def merged(self) -> torch.Tensor:
        """W + B A, Shape (out, in)."""
        return torch.addmm(self.weight, self.lora_up, self.lora_down)


def merged_state(network: nn.Module) -> dict[str, torch.Tensor]:
    """State of a network by the names of its architecture; adapters are merged into copies of their weights."""
    state = network.state_dict()
    for name, layer in network.named_modules():
        if isinstance(layer, LowRankLinear):
            state[f"{name}.weight"] = layer.merged()
            del state[name + DOWN], state[name + UP]
    return state


def has_adapters(network: nn.Module) -> bool:
    """Whether the network has layers with adapters."""
    return any(isinstance(layer, LowRankLinear) for layer in network.modules())
