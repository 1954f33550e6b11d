"""FixMatch (Sohn et al. 2020): the class of the weak view is the label of the strong one, where it is sure enough."""

from __future__ import annotations

from typing import ClassVar

import torch

from histo_monai.semisupervised.settings import FixMatchSettings
from histo_monai.semisupervised.students.pseudo_labels import PseudoLabels


class FixMatch(PseudoLabels):
    """Equations 3 and 4 of the paper."""

    Settings: ClassVar[type] = FixMatchSettings

    def pseudo_labels(self, labeled: torch.Tensor, weak: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The most probable class; 1 where it reaches the threshold, else 0."""
        confidence, targets = weak.max(dim=1)
        return targets, (confidence >= self.settings.threshold).float()
