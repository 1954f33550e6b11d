"""Networks and batches on their device: memory order and precision that are fast there."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn


def to_device(network: nn.Module, device: torch.device) -> None:
    """Move a network; channels-last on a GPU."""
    network.to(device)
    if device.type == "cuda":
        channels_last(network)


def channels_last(network: nn.Module) -> None:
    """The memory order that convolutions without gradient are fastest in, on a CPU too."""
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in the stubs


def precision(device: torch.device) -> AbstractContextManager[Any]:
    """bfloat16 autocast on a GPU, float32 elsewhere."""
    return torch.autocast("cuda", dtype=torch.bfloat16) if device.type == "cuda" else nullcontext()


def in_memory_order(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Channels-last where the convolutions are fastest in it; five axes are (n, S, C, H, W), others stay."""
    if device.type != "cuda" or x.ndim < 4:
        return x
    if x.ndim == 5:
        return x.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, x.shape[:2])
    return x.contiguous(memory_format=torch.channels_last)
