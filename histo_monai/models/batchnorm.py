"""Batch-norm with statistics over all processes, so that their number does not change a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from torch import nn

from histo_monai.utils.errors import InputError


def has_batchnorm(network: nn.Module) -> bool:
    """Whether the network has batch-norm layers."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules())


NUM_PATCHES = 1024
"""Patches for new batch-norm statistics, where no number is set."""


def patches_for_statistics(num: int | None, *, has_weights: bool) -> int:
    """Number of patches for new batch-norm statistics; 0: the encoder's own statistics stay.

    Statistics of a few own patches ruin published weights, which were trained with the statistics in their file.

    Args:
        num: number in params; None: 0 with given weights, else `NUM_PATCHES`.
        has_weights: whether the encoder starts from a file of weights.
    """
    if num is not None:
        return num
    return 0 if has_weights else NUM_PATCHES


def freeze_statistics(network: nn.Module) -> None:
    """Put all batch-norms into evaluation mode: their statistics stay in training, too."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()


class ProcessBatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d` over the batches of all processes, for devices without SyncBatchNorm (CPU).

    Processes may hold different numbers of images. Statistics and gradients pass through a differentiable all-reduce;
    running statistics use the unbiased variance of the global batch, as in torch.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Input (N, C, H, W) of this process, normalized over all processes."""
        return self.activated(self._normalized(input))

    def activated(self, normalized: torch.Tensor) -> torch.Tensor:
        """Identity; subclasses apply the layer's activation."""
        return normalized

    def _normalized(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training or not dist.is_initialized():
            return super().forward(input)
        num = input.new_tensor([input.numel() // input.shape[1]])
        totals = dist_nn.all_reduce(torch.cat([input.sum(dim=(0, 2, 3)), num]))
        mean, num = totals[:-1] / totals[-1], totals[-1].detach()
        centered = input - mean.view(1, -1, 1, 1)
        variance = dist_nn.all_reduce(centered.square().sum(dim=(0, 2, 3))) / num
        if self.track_running_stats:
            with torch.no_grad():
                self._track(mean, variance, int(num))
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return centered * scale.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)

    def _track(self, mean: torch.Tensor, variance: torch.Tensor, count: int) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        momentum = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(variance * count / (count - 1), momentum)


class ProcessBatchNormAct2d(ProcessBatchNorm2d):
    """`ProcessBatchNorm2d` for timm's `BatchNormAct2d` with its activation inside the layer."""

    drop: nn.Module
    act: nn.Module

    def activated(self, normalized: torch.Tensor) -> torch.Tensor:
        """Dropout and activation of the layer."""
        return self.act(self.drop(normalized))


@contextmanager
def statistics_of_the_batch(module: nn.Module) -> Iterator[None]:
    """Context in which batch-norms normalize by the present batch and leave their own statistics unchanged."""
    norms = [child for child in module.modules() if isinstance(child, nn.modules.batchnorm._BatchNorm)]
    before = [(norm.training, norm.track_running_stats) for norm in norms]
    for norm in norms:
        norm.training, norm.track_running_stats = True, False
    try:
        yield
    finally:
        for norm, (training, tracks) in zip(norms, before, strict=True):
            norm.training, norm.track_running_stats = training, tracks


def synchronise_batchnorm(module: nn.Module, device: torch.device) -> nn.Module:
    """Replace every batch-norm in place by one with statistics over all processes; names and values stay.

    CUDA uses torch's SyncBatchNorm (timm's for layers with an activation), other devices `ProcessBatchNorm2d`.

    Raises:
        InputError: a kind of batch-norm has no replacement.
    """
    spanning = (ProcessBatchNorm2d, nn.SyncBatchNorm)
    norms = [child for child in module.modules() if isinstance(child, nn.modules.batchnorm._BatchNorm)]
    norms = [norm for norm in norms if not isinstance(norm, spanning)]
    kinds = {id(norm): _spanning(norm) for norm in norms}
    if not kinds:
        return module
    if device.type == "cuda":
        if ProcessBatchNormAct2d not in kinds.values():
            return nn.SyncBatchNorm.convert_sync_batchnorm(module)
        from timm.layers import convert_sync_batchnorm

        return convert_sync_batchnorm(module)
    for norm in norms:
        norm.__class__ = kinds[id(norm)]
    return module


def _spanning(norm: nn.Module) -> type[ProcessBatchNorm2d]:
    if type(norm) is nn.BatchNorm2d:
        return ProcessBatchNorm2d
    if isinstance(norm, nn.BatchNorm2d) and type(norm).__name__ == "BatchNormAct2d":
        return ProcessBatchNormAct2d
    raise InputError(
        f"encoder.name: statistics of its {type(norm).__name__} cannot span several processes. Fix: set "
        "HISTO_MONAI_RANKS=1, or choose another encoder."
    )
