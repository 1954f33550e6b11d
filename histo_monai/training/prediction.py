"""Passes without gradient over patches that are not augmented."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from ignite.engine import Engine
from torch import nn
from torch.optim.swa_utils import update_bn

from histo_monai.data.loaders.labeled import LabeledLoader
from histo_monai.models.task_model import TaskModel
from histo_monai.training.device import in_memory_order, precision, to_device
from histo_monai.training.means import attach_means
from histo_monai.training.task import Task
from histo_monai.transforms.views import plain_view


def single_view(patches: torch.Tensor, size_px: int, device: torch.device) -> torch.Tensor:
    """(n, 1, 3, H, H) uint8 -> (n, 3, size_px, size_px) float32, 0..1, not augmented."""
    return in_memory_order(plain_view(patches.to(device, non_blocking=True), size_px).squeeze(1), device)


def build_evaluator(
    network: Callable[[torch.Tensor], torch.Tensor], task: Task, targets: torch.Tensor
) -> Engine:
    """An engine over validation batches: means of the objective's measures.

    Args:
        network: patches -> outputs, in evaluation mode.
        task: what is measured, and where.
        targets: by row.
    """

    def step(engine: Engine, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        patches, rows = batch
        with torch.no_grad(), precision(task.device):
            outputs = network(single_view(patches, task.patch_px, task.device))
        wanted = targets[rows].to(task.device)
        return task.objective.measure(outputs, wanted)

    evaluator = Engine(step)
    attach_means(evaluator, task.objective.MEASURES)
    return evaluator


def predict(network: nn.Module, task: Task, loader: Iterable[Any]) -> torch.Tensor:
    """Predictions of patches that are not augmented, in the order of the loader.

    Args:
        network: patches -> outputs; moved to the task's device.
        task: what is predicted, and where.
        loader: batches of patches and anything beside them.

    Returns:
        Shape (n, K), float32, on the CPU: probabilities of classes, or the score in 0..1.
    """
    return over_patches(network, lambda x: task.objective.predictions(network(x)), task, loader)


def over_patches(
    network: nn.Module, seen: Callable[[torch.Tensor], torch.Tensor], task: Task, loader: Iterable[Any]
) -> torch.Tensor:
    """What a network, or a part of it, makes of patches that are not augmented, in the order of the loader.

    Args:
        network: moved to the task's device, in evaluation mode.
        seen: patches -> Shape (batch, ...).
        task: the size of its patches, and where.
        loader: batches of patches and anything beside them, at least one.

    Returns:
        Shape (n, ...), float32, on the CPU.
    """
    to_device(network, task.device)
    network.eval()
    parts = []
    for patches, _ in loader:
        with torch.no_grad(), precision(task.device):
            parts.append(seen(single_view(patches, task.patch_px, task.device)).float().cpu())
    return torch.cat(parts)


def take_statistics(model: TaskModel, task: Task, patches: LabeledLoader) -> None:
    """Replace the statistics of all batch-norms by those of patches that are not augmented; weights stay.

    See Wu & Johnson 2021. Those that training leaves are of augmented and mixed images, under weights that were moving.

    Args:
        model: moved to the task's device; one without batch-norms is left as it is.
        task: the size of its patches, and where.
        patches: shuffled, so that a batch holds many slides: variances are means of the batches' own. Labels are not
            looked at.
    """
    to_device(model, task.device)
    with precision(task.device):
        update_bn((single_view(batch, task.patch_px, task.device) for batch, _ in patches.loader), model)
