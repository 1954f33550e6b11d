"""How many patches a model takes for each class, and a student that keeps to it.

A student that learns from its own guesses gets surer of them, and where most tissue is of one class, it ends by calling
too much of it that class: it ranks patches better than the model that it came from, and its threshold is off. What it
came from has seen labels; so who is what is the student's to say, and how many are what stays as it was.
"""

from __future__ import annotations

import torch

from histo_monai.engines.device import precision, to_device
from histo_monai.engines.prediction import single_view
from histo_monai.engines.task import Task
from histo_monai.loading.labeled import LabeledLoader
from histo_monai.networks.task_model import TaskModel

_ROUNDS = 1000
_CLOSE = 1e-6
"""Shares that differ by less are the same."""


def mean_prediction(model: TaskModel, task: Task, patches: LabeledLoader) -> torch.Tensor:
    """Mean probability of each class, or the mean score, over patches that are not augmented.

    Args:
        model: moved to the task's device; its batch-norms normalize by the statistics that they hold.
        task: what is predicted, and where.
        patches: their labels are not looked at.

    Returns:
        Shape (K,), float64, on the CPU.
    """
    return task.objective.predictions(_outputs(model, task, patches)).double().mean(dim=0)


def keep_shares(model: TaskModel, task: Task, patches: LabeledLoader, shares: torch.Tensor) -> torch.Tensor:
    """Change the biases of a model's last layer until its mean prediction is as given; the order of patches stays.

    Args:
        model: as for `mean_prediction`.
        task: likewise.
        patches: likewise, those that the shares are of.
        shares: mean prediction to come to; Shape (K,).

    Returns:
        What the biases were changed by; Shape (K,), float64.
    """
    outputs = _outputs(model, task, patches).double()
    change = shares - outputs.mean(dim=0) if task.objective.classes is None else log_odds_to(outputs, shares)
    bias: torch.Tensor = model.head.linear.bias
    with torch.no_grad():
        bias.add_(change.to(bias))
    return change


def log_odds_to(logits: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """What to add to the logits of each class so that the mean of their softmax is `shares`.

    Rows and columns are scaled in turn (Sinkhorn & Knopp 1967), which ends where both are right.

    Args:
        logits: Shape (n, K), float64.
        shares: sum 1; Shape (K,). A class of none is given next to none.

    Returns:
        Shape (K,), float64; sum 0.
    """
    shares = shares.clamp(min=_CLOSE)
    change = torch.zeros_like(shares)
    for _ in range(_ROUNDS):
        found = (logits + change).softmax(dim=1).mean(dim=0)
        if float((found - shares).abs().max()) < _CLOSE:
            break
        change += shares.log() - found.log()
    return change - change.mean()


def _outputs(model: TaskModel, task: Task, patches: LabeledLoader) -> torch.Tensor:
    """Shape (n, K), float32, on the CPU."""
    to_device(model, task.device)
    model.eval()
    parts = []
    for batch, _ in patches.loader:
        with torch.no_grad(), precision(task.device):
            parts.append(model(single_view(batch, task.patch_px, task.device)).float().cpu())
    return torch.cat(parts)
