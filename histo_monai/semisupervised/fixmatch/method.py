"""FixMatch (Sohn et al. 2020): the class of the weak view is the label of the strong one, where it is sure enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from histo_monai.semisupervised.pseudo_labels import PseudoLabels
from histo_monai.semisupervised.student import StudentSettings
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class FixMatchSettings(StudentSettings):
    """As `StudentSettings`; `threshold`: probability that a class must have to be a label (published: 0.95)."""

    threshold: Annotated[float, Range(0.0, 0.999)]


class FixMatch(PseudoLabels):
    """Equations 3 and 4 of the paper."""

    Settings: ClassVar[type] = FixMatchSettings

    def pseudo_labels(self, labeled: torch.Tensor, weak: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The most probable class; 1 where it reaches the threshold, else 0."""
        confidence, targets = weak.max(dim=1)
        return targets, (confidence >= self.settings.threshold).float()
