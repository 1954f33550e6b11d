"""FreeMatch: global and class thresholds that follow the student's confidence (Wang et al. 2023)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from histo_monai.semisupervised.settings import FreeMatchSettings
from histo_monai.semisupervised.students.pseudo_labels import PseudoLabels

_TINY = 1e-12


class FreeMatch(PseudoLabels):
    """Equations 5 to 11 of Wang et al. 2023."""

    Settings: ClassVar[type] = FreeMatchSettings

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        num = len(self.objective.classes or ())
        self.network.register_buffer("confidence", torch.tensor(1.0 / num))
        for name in ("class_proportions", "histogram"):
            self.network.register_buffer(name, torch.full((num,), 1.0 / num))

    def pseudo_labels(self, labeled: torch.Tensor, weak: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Most probable class, and weight 1 from the threshold of the class on, else 0."""
        confidence, targets = weak.max(dim=1)
        counts = F.one_hot(targets, weak.shape[1]).float().mean(dim=0)
        for name, now in (
            ("confidence", confidence.mean()),
            ("class_proportions", weak.mean(dim=0)),
            ("histogram", counts),
        ):
            getattr(self.network, name).lerp_(now, 1 - self.settings.momentum)
        proportions = self.network.get_buffer("class_proportions")
        thresholds = self.network.get_buffer("confidence") * proportions / proportions.max()
        return targets, (confidence >= thresholds[targets]).float()

    def regularization(self, strong: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Fairness loss: minus the cross-entropy of strong-view class proportions, each over its class histogram."""
        mask = (counts > 0).float().unsqueeze(1)  # a factor: indexing rows would synchronize the GPU
        num = mask.sum()
        strong = strong.float().softmax(dim=1)
        proportions = (strong * mask).sum(dim=0) / num.clamp_min(1)
        histogram = (F.one_hot(strong.argmax(dim=1), strong.shape[1]) * mask).sum(dim=0) / num.clamp_min(1)
        buffer = self.network.get_buffer
        average = _normalized(buffer("class_proportions"), buffer("histogram"))
        cross_entropy = (average * torch.log(_normalized(proportions, histogram) + _TINY)).sum()
        return self.settings.fairness * cross_entropy * (num > 0)


def _normalized(proportions: torch.Tensor, histogram: torch.Tensor) -> torch.Tensor:
    """Proportions over the histogram with sum 1; 0 where the histogram is 0."""
    ratio = torch.where(
        histogram > 0, proportions / histogram.clamp_min(_TINY), torch.zeros_like(proportions)
    )
    return ratio / ratio.sum().clamp_min(_TINY)
