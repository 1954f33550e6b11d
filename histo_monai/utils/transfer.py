"""Asynchronous copies of small tensors to a device."""

from __future__ import annotations

import torch


def sent(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy of a CPU tensor on a device, without waiting for the device.

    Copies to a GPU use page-locked memory; from other memory, CUDA may wait for all earlier work.
    """
    return (x.pin_memory() if device.type == "cuda" else x).to(device, non_blocking=True)
