"""FreeMatch (Wang et al. 2023): thresholds that follow the student's own confidence, of all classes and of each."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from histo_monai.semisupervised.settings import FreeMatchSettings
from histo_monai.semisupervised.students.pseudo_labels import PseudoLabels

_TINY = 1e-12


class FreeMatch(PseudoLabels):
    """Equations 5 to 11 of the paper."""

    Settings: ClassVar[type] = FreeMatchSettings

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        num = len(self.objective.classes or ())
        self.network.register_buffer("confidence", torch.tensor(1.0 / num))
        for name in ("shares", "histogram"):
            self.network.register_buffer(name, torch.full((num,), 1.0 / num))

    def pseudo_labels(self, labeled: torch.Tensor, weak: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The most probable class; 1 where it reaches the threshold of its class, else 0."""
        confidence, targets = weak.max(dim=1)
        counts = F.one_hot(targets, weak.shape[1]).float().mean(dim=0)
        for name, now in (
            ("confidence", confidence.mean()),
            ("shares", weak.mean(dim=0)),
            ("histogram", counts),
        ):
            getattr(self.network, name).lerp_(now, 1 - self.settings.momentum)
        shares = self.network.get_buffer("shares")
        thresholds = self.network.get_buffer("confidence") * shares / shares.max()
        return targets, (confidence >= thresholds[targets]).float()

    def regularization(self, strong: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Fairness: minus the cross-entropy of class shares in strong views, both divided by how often a class wins."""
        seen = (counts > 0).float().unsqueeze(1)  # as a factor: to pick rows is to wait for a GPU
        num = seen.sum()
        strong = strong.float().softmax(dim=1)
        shares = (strong * seen).sum(dim=0) / num.clamp_min(1)
        wins = (F.one_hot(strong.argmax(dim=1), strong.shape[1]) * seen).sum(dim=0) / num.clamp_min(1)
        buffer = self.network.get_buffer
        followed = _normalized(buffer("shares"), buffer("histogram"))
        cross_entropy = (followed * torch.log(_normalized(shares, wins) + _TINY)).sum()
        return self.settings.fairness * cross_entropy * (num > 0)


def _normalized(shares: torch.Tensor, histogram: torch.Tensor) -> torch.Tensor:
    """Shares over the histogram, 0 where it is 0, summing to 1; all 0 where there are none."""
    ratio = torch.where(histogram > 0, shares / histogram.clamp_min(_TINY), torch.zeros_like(shares))
    return ratio / ratio.sum().clamp_min(_TINY)
