"""RankUp: an auxiliary ranking head with FixMatch, for scores (Huang et al. 2024).

With regression distribution alignment: the ranks of the student's weak-view scores are mapped to quantiles of the
labels; strong views learn these quantiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from histo_monai.models.layers import at_full_precision
from histo_monai.semisupervised.protocol import PSEUDO_LABELS, Batch
from histo_monai.semisupervised.settings import RankUpSettings
from histo_monai.semisupervised.students.student import Student
from histo_monai.training.schedule import Schedule
from histo_monai.utils.errors import InputError


@dataclass(frozen=True)
class Ranked:
    """Outputs of labeled, weak and strong views.

    Attributes:
        scores: predicted scores, (n, 1) each.
        ranks: outputs of the ranking head, (n,) each; higher for higher scores.
    """

    scores: tuple[torch.Tensor, ...]
    ranks: tuple[torch.Tensor, ...]


class RankUp(Student):
    """Student with a ranking head. Scores are aligned within a batch; Huang et al. align over a table of all images.

    Raises:
        InputError: the dataset has classes.
    """

    Settings: ClassVar[type] = RankUpSettings
    measures = (
        *("loss", "supervised", "ranking", "unlabeled", "alignment", "absolute_error", "used"),
        PSEUDO_LABELS,
    )

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        if self.objective.classes is not None:
            raise InputError(
                "semisupervised_methods: rankup learns scores, but the dataset has classes. Fix: use fixmatch."
            )
        torch.manual_seed(0)
        self.network.add_module("ranking", nn.Linear(self.model.encoder.num_features, 1))

    def optimizer(self, schedule: Schedule) -> torch.optim.Optimizer:
        """Optimizer of `Student`, with the ranking head at the head's learning rate."""
        optimizer = super().optimizer(schedule)
        optimizer.param_groups[0]["params"] += list(self.network.get_submodule("ranking").parameters())
        return optimizer

    def outputs(self, views: tuple[torch.Tensor, ...]) -> Ranked:
        """Scores and ranks of all views, from one pass of the backbone."""
        student, counts = self.network.student, [len(view) for view in views]
        features = student.encoder(torch.cat(views))
        ranks = at_full_precision(self.network.get_submodule("ranking"), features)
        return Ranked(student.head(features).split(counts), ranks.squeeze(1).split(counts))

    def measure(self, outputs: Ranked, batch: Batch) -> dict[str, torch.Tensor]:
        """Mean supervised loss + weighted ranking, unlabeled and alignment losses, shape (1,); and its parts."""
        labeled, weak, strong = outputs.scores
        measured = self.objective.measure(labeled, batch.targets)
        of_labeled, of_weak, of_strong = outputs.ranks
        first, second = torch.triu_indices(len(of_labeled), len(of_labeled), 1, device=of_labeled.device)
        # 1, 0, or one half for equal scores
        order = torch.sign(batch.targets[first] - batch.targets[second]).add(1).div(2)
        ranking = _order_loss(of_labeled, order)
        with torch.no_grad():
            pseudo = torch.sigmoid(pairwise(of_weak))
            used = (torch.maximum(pseudo, 1 - pseudo) >= self.settings.threshold).float()
            aligned = align(weak.squeeze(1), batch.targets)
        unlabeled = _order_loss(of_strong, pseudo.round()) * used
        distance = (strong.float().squeeze(1) - aligned).square()
        settings = self.settings
        loss = measured["loss"].mean() + settings.ranking * ranking.mean()
        loss = loss + settings.weight * unlabeled.mean() + settings.alignment * distance.mean()
        return {
            "loss": loss.unsqueeze(0),
            "supervised": measured["loss"],
            "ranking": ranking,
            "unlabeled": unlabeled,
            "alignment": distance,
            "absolute_error": measured["absolute_error"],
            "used": used,
            PSEUDO_LABELS: aligned,
        }


def pairwise(ranks: torch.Tensor) -> torch.Tensor:
    """Differences (n (n - 1) / 2,) of all pairs i < j of ranks (n,), row by row."""
    first, second = torch.triu_indices(len(ranks), len(ranks), 1, device=ranks.device)
    return ranks[first].float() - ranks[second].float()


def align(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Quantiles of the labels (m,) at the ranks of the scores (n,), linearly interpolated. Shape (n,)."""
    order = scores.float().argsort().argsort()
    return torch.quantile(labels.float(), (order + 0.5) / len(scores))


def _order_loss(ranks: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(pairwise(ranks), wanted, reduction="none")
