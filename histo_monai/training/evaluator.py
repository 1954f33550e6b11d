"""Ignite's engine for the objective's measures on held-out patches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from ignite.engine import Engine

from histo_monai.training.device import precision
from histo_monai.training.means import attach_means
from histo_monai.training.prediction import single_view
from histo_monai.training.task import Task


def build_evaluator(
    network: Callable[[torch.Tensor], torch.Tensor], task: Task, targets: torch.Tensor
) -> Engine:
    """Engine over validation batches, with means of the objective's measures.

    Args:
        network: patches -> outputs, in evaluation mode.
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
