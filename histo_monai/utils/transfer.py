"""Small tensors on their way to a device, for which nobody waits."""

from __future__ import annotations

import torch


def sent(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy of a tensor of the CPU on a device; nobody waits for what the device has still to do.

    To a GPU it goes through page-locked memory: from other memory, CUDA may wait for all that it was asked before.
    """
    return (x.pin_memory() if device.type == "cuda" else x).to(device, non_blocking=True)
