"""Trunks that end at a stage, or give features of several depths in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

_LEAST_VARIANCE = 1e-4
"""Added to the variance of a channel: the slope of the root at 0 is infinite."""


class FirstStages(nn.Module):
    """First stages of a trunk, with the trunk's names: texture, where full depth encodes objects.

    Input  (N, 3, H, W), float32
    Output (N, 2 C), float32: mean and standard deviation of each channel of the last stage

    Args:
        trunk: its modules are used, not copied.
        last: name of its last module.
    """

    def __init__(self, trunk: nn.Module, last: str) -> None:
        super().__init__()
        for name, part in trunk.named_children():
            self.add_module(name, part)
            if name == last:
                break

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Features of a batch of patches."""
        x = patches
        for part in self.children():
            x = part(x)
        return pooled(x)


class SeveralDepths(nn.Module):
    """Features of several depths of a trunk side by side, in one pass.

    Input  (N, 3, H, W), float32
    Output (N, D_1 + D_2 + ...), float32: mean and standard deviation of each channel of the earlier stages, in their
           order, then what the trunk gives

    Args:
        trunk: ends at the deepest depth; used, not copied.
        earlier: names of its modules at the other depths, in the order of the forward pass.
    """

    def __init__(self, trunk: nn.Module, earlier: Sequence[str]) -> None:
        super().__init__()
        self.deepest = trunk
        self.earlier = tuple(earlier)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Features of a batch of patches."""
        return torch.cat(features_after(self.deepest, self.earlier, patches), dim=1)


class DepthsApart(nn.Module):
    """The features of `SeveralDepths` as a list."""

    def __init__(self, depths: SeveralDepths) -> None:
        super().__init__()
        self.depths = depths

    def forward(self, patches: torch.Tensor) -> list[torch.Tensor]:
        """Features of a batch of patches."""
        return features_after(self.depths.deepest, self.depths.earlier, patches)


def features_after(trunk: nn.Module, ends: Sequence[str], *arguments: Any) -> list[torch.Tensor]:
    """Pooled maps of some modules of a trunk, then its output; one pass.

    Raises:
        RuntimeError: a module did not run.
    """
    features: list[torch.Tensor] = []
    hooks = [
        trunk.get_submodule(name).register_forward_hook(lambda _, __, maps: features.append(pooled(maps)))
        for name in ends
    ]
    try:
        last = trunk(*arguments)
    finally:
        for hook in hooks:
            hook.remove()
    if len(features) != len(ends):
        raise RuntimeError(f"{len(features)} of the modules {', '.join(ends)} ran")
    return [*features, last]


def pooled(maps: torch.Tensor) -> torch.Tensor:
    """(N, C, h, w) -> (N, 2 C), float32: mean and standard deviation of each channel."""
    values = maps.float().flatten(2)
    return torch.cat([values.mean(dim=2), (values.var(dim=2, correction=0) + _LEAST_VARIANCE).sqrt()], dim=1)
