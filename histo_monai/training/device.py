"""Memory order and precision of networks and batches on their device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from histo_monai.utils.process.precision import computes_in_bfloat16
from histo_monai.utils.randomness import Step, derive_seed
from histo_monai.utils.ranks import this_rank


def to_device(network: nn.Module, device: torch.device) -> None:
    """Move a network to a device, in its fast memory order."""
    network.to(device)
    if _wants_channels_last(device, network.parameters()):
        channels_last(network)


def tensors_on(tensors: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    """Weights on a device, in its fast memory order: networks that share them need not copy them again."""
    if not _wants_channels_last(device, tensors.values()):
        return {name: tensor.to(device) for name, tensor in tensors.items()}
    orders = {4: torch.channels_last}
    return {
        name: tensor.to(device, memory_format=orders.get(tensor.ndim, torch.preserve_format))
        for name, tensor in tensors.items()
    }


def channels_last(network: nn.Module) -> None:
    """Change a network to channels-last, which is fast for convolutions without gradient."""
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in the stubs


def precision(device: torch.device) -> AbstractContextManager[Any]:
    """Autocast to bfloat16 on devices that compute in it, else no change."""
    if computes_in_bfloat16(device):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def in_memory_order(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Batch in the fast memory order of a device; five axes are (n, S, C, H, W), fewer than four stay.

    On a CPU in float32 the order of the network's weights decides, and its first convolution changes the batch.
    """
    if not _wants_channels_last(device) or x.ndim < 4:
        return x
    if x.ndim == 5:
        return x.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, x.shape[:2])
    return x.contiguous(memory_format=torch.channels_last)


def _wants_channels_last(device: torch.device, weights: Iterable[torch.Tensor] = ()) -> bool:
    """True on a GPU, on a CPU in bfloat16, and for weights of a depthwise convolution (filters of one channel).

    In float32 a CPU trains other networks faster in contiguous order.
    """
    if device.type == "cuda" or computes_in_bfloat16(device):
        return True
    return any(tensor.ndim == 4 and tensor.shape[1] == 1 for tensor in weights)


def seed_random_layers(step: Step, device: torch.device) -> None:
    """Seed the generators of dropout and stochastic depth for a step, different in every process.

    So a training that is resumed, or a fold that is trained alone, drops the same.
    """
    seed = derive_seed(step.derive_seed("random layers"), this_rank())
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
