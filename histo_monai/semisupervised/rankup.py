"""RankUp (Huang et al. 2024): a second head tells which of two images scores higher, and learns it as FixMatch does.

With regression distribution alignment: the student's scores of weak views, put in order, take the quantiles of the
labels that are given, and strong views learn these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from histo_monai.models.layers import at_full_precision
from histo_monai.semisupervised.protocol import GUESSES, Batch
from histo_monai.semisupervised.settings import RankUpSettings
from histo_monai.semisupervised.students.student import Student
from histo_monai.training.schedule import Schedule
from histo_monai.utils.errors import InputError


@dataclass(frozen=True)
class Ranked:
    """Outputs of all views.

    Attributes:
        scores: of labeled, weak and strong views, (n, 1) each.
        ranks: of the same, (n,) each: the higher, the higher the score is thought to be.
    """

    scores: tuple[torch.Tensor, ...]
    ranks: tuple[torch.Tensor, ...]


class RankUp(Student):
    """See the module and `Student`. Pseudo scores are aligned within a batch, where the paper keeps a table of all.

    Raises:
        InputError: classes are asked for.
    """

    Settings: ClassVar[type] = RankUpSettings
    measures = ("loss", "supervised", "ranking", "unlabeled", "alignment", "absolute_error", "used", GUESSES)

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        if self.objective.classes is not None:
            raise InputError(
                "semisupervised_methods: rankup learns scores, and the dataset has classes; take fixmatch or another"
            )
        torch.manual_seed(0)
        self.network.add_module("ranking", nn.Linear(self.model.encoder.num_features, 1))

    def optimizer(self, schedule: Schedule) -> torch.optim.Optimizer:
        """As of `Student`; the ranking head at the rate of the other one."""
        optimizer = super().optimizer(schedule)
        optimizer.param_groups[0]["params"] += list(self.network.get_submodule("ranking").parameters())
        return optimizer

    def outputs(self, views: tuple[torch.Tensor, ...]) -> Ranked:
        """Scores and ranks of all views, which go through the trunk in one batch."""
        student, counts = self.network.student, [len(view) for view in views]
        features = student.encoder(torch.cat(views))
        ranks = at_full_precision(self.network.get_submodule("ranking"), features)
        return Ranked(student.head(features).split(counts), ranks.squeeze(1).split(counts))

    def measure(self, outputs: Ranked, batch: Batch) -> dict[str, torch.Tensor]:
        """Mean supervised loss + the three others by their weights, shape (1,); and its parts."""
        labeled, weak, strong = outputs.scores
        measured = self.objective.measure(labeled, batch.targets)
        of_labeled, of_weak, of_strong = outputs.ranks
        first, second = torch.triu_indices(len(of_labeled), len(of_labeled), 1, device=of_labeled.device)
        wanted = (
            torch.sign(batch.targets[first] - batch.targets[second]).add(1).div(2)
        )  # equal scores: one half
        ranking = _order_loss(of_labeled, wanted)
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
            GUESSES: aligned,
        }


def pairwise(ranks: torch.Tensor) -> torch.Tensor:
    """(n,) -> differences of all pairs i < j, row by row. Shape (n (n - 1) / 2,)."""
    first, second = torch.triu_indices(len(ranks), len(ranks), 1, device=ranks.device)
    return ranks[first].float() - ranks[second].float()


def align(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Scores (n,) -> the quantiles of the labels (m,) at their places in the order, linear between. Shape (n,)."""
    order = scores.float().argsort().argsort()
    return torch.quantile(labels.float(), (order + 0.5) / len(scores))


def _order_loss(ranks: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(pairwise(ranks), wanted, reduction="none")
