"""How many patches a model takes for each class, or how its scores spread, and a student that keeps to it.

A student that learns from its own guesses gets surer of them, and where most tissue is of one class, it ends by calling
too much of it that class: it ranks patches better than the model that it came from, and its threshold is off. Scores of
one that learns from mixtures of images draw together. What it came from has seen labels; so who is what is the
student's to say, and how many are what stays as it was.
"""

from __future__ import annotations

import torch

from histo_monai.data.loaders.labeled import LabeledLoader
from histo_monai.models.task_model import TaskModel
from histo_monai.training.prediction import over_patches, take_statistics
from histo_monai.training.task import Task

MOST_STRETCHED = 3.0
"""Scores that are all alike are not torn apart."""
_ROUNDS = 1000
_CLOSE = 1e-6
"""Shares that differ by less are the same."""


def shares_of(model: TaskModel, task: Task, patches: LabeledLoader) -> torch.Tensor:
    """Mean probability of each class over patches that are not augmented; of scores their mean and standard deviation.

    Args:
        model: moved to the task's device; its batch-norms normalize by the statistics that they hold.
        task: what is predicted, and where.
        patches: their labels are not looked at.

    Returns:
        Shape (K,), of scores Shape (2,); float64, on the CPU.
    """
    outputs = _outputs(model, task, patches)
    return _mean_and_spread(outputs) if task.objective.classes is None else outputs.softmax(dim=1).mean(dim=0)


def match_class_proportions(
    model: TaskModel, task: Task, patches: LabeledLoader, shares: torch.Tensor
) -> None:
    """Change a model's last layer until its shares are as given; patches keep their order in each class, or by score.

    Of classes its biases change, of scores it is stretched as a whole, at most by `MOST_STRETCHED`.

    Args:
        patches: those that the shares are of.
        shares: as `shares_of` gives them, of another model.
    """
    outputs = _outputs(model, task, patches)
    weight: torch.Tensor = model.head.linear.weight
    bias: torch.Tensor = model.head.linear.bias
    with torch.no_grad():
        if task.objective.classes is not None:
            bias.add_(log_odds_to(outputs, shares).to(bias))
            return
        (mean, spread), (wanted, wanted_spread) = _mean_and_spread(outputs).tolist(), shares.tolist()
        stretch = min(max(wanted_spread / max(spread, _CLOSE), 1 / MOST_STRETCHED), MOST_STRETCHED)
        weight.mul_(stretch)
        bias.mul_(stretch).add_(wanted - stretch * mean)


def adapt(model: TaskModel, task: Task, patches: LabeledLoader, shares: torch.Tensor | None) -> None:
    """Take a model's batch-norm statistics from patches, and keep its shares of them where these are given.

    Args:
        model: changed.
        task: what is predicted, and where.
        patches: shuffled, see `take_statistics`; their labels are not looked at.
        shares: see `match_class_proportions`; None: the last layer stays.
    """
    take_statistics(model, task, patches)
    if shares is not None:
        match_class_proportions(model, task, patches, shares)


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


def _mean_and_spread(scores: torch.Tensor) -> torch.Tensor:
    """(n, 1) -> (2,)."""
    return torch.stack([scores.mean(), scores.std(correction=0)])


def _outputs(model: TaskModel, task: Task, patches: LabeledLoader) -> torch.Tensor:
    """Shape (n, K), float64, on the CPU."""
    return over_patches(model, model, task, patches.loader).double()
