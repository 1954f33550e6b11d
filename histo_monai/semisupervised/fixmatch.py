"""FixMatch: confident classes of weak views label the strong views (Sohn et al. 2020)."""

from __future__ import annotations

from typing import ClassVar

import torch

from histo_monai.semisupervised.settings import FixMatchSettings
from histo_monai.semisupervised.students.pseudo_labels import PseudoLabels


class FixMatch(PseudoLabels):
    """Equations 3 and 4 of Sohn et al. 2020."""

    Settings: ClassVar[type] = FixMatchSettings

    def pseudo_labels(self, labeled: torch.Tensor, weak: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Most probable class, and weight 1 from the threshold on, else 0."""
        confidence, targets = weak.max(dim=1)
        return targets, (confidence >= self.settings.threshold).float()
