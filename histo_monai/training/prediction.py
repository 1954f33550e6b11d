"""Passes without gradient over unaugmented patches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import update_bn

from histo_monai.data.loaders.labeled import LabeledLoader
from histo_monai.models.task_model import TaskModel
from histo_monai.training.device import in_memory_order, precision, to_device
from histo_monai.training.task import Task
from histo_monai.transforms.fixed_views import unaugmented_view


def single_view(patches: torch.Tensor, size_px: int, device: torch.device) -> torch.Tensor:
    """Unaugmented view (n, 3, size_px, size_px), float32, 0..1, of patches (n, 1, 3, H, H), uint8."""
    return in_memory_order(
        unaugmented_view(patches.to(device, non_blocking=True), size_px).squeeze(1), device
    )


def predict(network: nn.Module, task: Task, loader: Iterable[Any]) -> torch.Tensor:
    """Predictions of unaugmented patches, in the order of the loader.

    Args:
        network: patches -> outputs; moved to the task's device.
        loader: batches of (patches, anything).

    Returns:
        Shape (n, K), float32, on the CPU: class probabilities, or the score in 0..1.
    """
    return over_patches(network, lambda x: task.objective.predictions(network(x)), task, loader)


def over_patches(
    network: nn.Module, function: Callable[[torch.Tensor], torch.Tensor], task: Task, loader: Iterable[Any]
) -> torch.Tensor:
    """Outputs of a network, or of a part, for unaugmented patches, in the order of the loader.

    Args:
        network: moved to the task's device, in evaluation mode.
        function: patches -> Shape (batch, ...).
        loader: batches of (patches, anything), at least one.

    Returns:
        Shape (n, ...), float32, on the CPU.
    """
    to_device(network, task.device)
    network.eval()
    parts = []
    for patches, _ in loader:
        with torch.no_grad(), precision(task.device):
            parts.append(function(single_view(patches, task.patch_px, task.device)).float().cpu())
    return torch.cat(parts)


def take_statistics(model: TaskModel, task: Task, patches: LabeledLoader) -> None:
    """Replace all batch-norm statistics by statistics of unaugmented patches; weights stay (Wu & Johnson 2021).

    Statistics of training are of augmented and mixed images, under moving weights.

    Args:
        model: moved to the task's device; unchanged without batch-norms.
        patches: shuffled, so that a batch has many slides: variances are means over batches. Labels are unused.
    """
    to_device(model, task.device)
    with precision(task.device):
        update_bn((single_view(batch, task.patch_px, task.device) for batch, _ in patches.loader), model)
