"""Class proportions or score spread of a model, and their transfer to its student.

Training on own pseudo labels makes a student more confident. Where most tissue is of one class, the student predicts
that class too often: it ranks patches better than its start model, but its threshold is off. Training on mixtures
shrinks the spread of scores. The start model learned from labels, so its proportions are restored; the student's
ranking does not change.
"""

from __future__ import annotations

import torch

from histo_monai.data.loaders.labeled import LabeledLoader
from histo_monai.finetuning.class_offsets import log_odds_to
from histo_monai.models.task_model import TaskModel
from histo_monai.training.prediction import over_patches, take_statistics
from histo_monai.training.task import Task

MOST_STRETCHED = 3.0
"""Largest factor by which scores are stretched."""
_SMALLEST_SPREAD = 1e-6


def class_proportions(model: TaskModel, task: Task, patches: LabeledLoader) -> torch.Tensor:
    """Mean class probabilities over unaugmented patches; for scores, mean and standard deviation.

    Args:
        model: moved to the task's device; batch-norms use their stored statistics.

    Returns:
        Shape (K,), of scores Shape (2,); float64, on the CPU.
    """
    outputs = _outputs(model, task, patches)
    return _mean_and_spread(outputs) if task.objective.classes is None else outputs.softmax(dim=1).mean(dim=0)


def match_class_proportions(
    model: TaskModel, task: Task, patches: LabeledLoader, proportions: torch.Tensor
) -> None:
    """Change a model's last layer to given class proportions; rankings within each class, or by score, stay.

    For classes its biases change. Scores are stretched as a whole, at most by `MOST_STRETCHED`.

    Args:
        proportions: from `class_proportions` of another model.
    """
    outputs = _outputs(model, task, patches)
    weight: torch.Tensor = model.head.linear.weight
    bias: torch.Tensor = model.head.linear.bias
    with torch.no_grad():
        if task.objective.classes is not None:
            bias.add_(log_odds_to(outputs, proportions).to(bias))
            return
        (mean, spread), (wanted, wanted_spread) = _mean_and_spread(outputs).tolist(), proportions.tolist()
        stretch = min(max(wanted_spread / max(spread, _SMALLEST_SPREAD), 1 / MOST_STRETCHED), MOST_STRETCHED)
        weight.mul_(stretch)
        bias.mul_(stretch).add_(wanted - stretch * mean)


def adapt(model: TaskModel, task: Task, patches: LabeledLoader, proportions: torch.Tensor | None) -> None:
    """Set a model's batch-norm statistics from patches, and match class proportions if given.

    Args:
        patches: shuffled, for `take_statistics`; labels are unused.
        proportions: target of `match_class_proportions`; None: the last layer stays.
    """
    take_statistics(model, task, patches)
    if proportions is not None:
        match_class_proportions(model, task, patches, proportions)


def _mean_and_spread(scores: torch.Tensor) -> torch.Tensor:
    """Mean and standard deviation (2,) of scores (n, 1)."""
    return torch.stack([scores.mean(), scores.std(correction=0)])


def _outputs(model: TaskModel, task: Task, patches: LabeledLoader) -> torch.Tensor:
    """Model outputs (n, K), float64, on the CPU."""
    return over_patches(model, model, task, patches.loader).double()
