"""AdaMatch (Berthelot et al. 2022): FixMatch, its threshold relative to the labeled batch, its classes aligned."""

from __future__ import annotations

from typing import ClassVar

import torch

from histo_monai.semisupervised.settings import AdaMatchSettings
from histo_monai.semisupervised.students.pseudo_labels import PseudoLabels


class AdaMatch(PseudoLabels):
    """Equations of section 3.3: distribution alignment, relative confidence threshold.

    Without the random interpolation of logits, which compares a pass over labeled images alone with one over all: here
    all views are one batch, always.
    """

    Settings: ClassVar[type] = AdaMatchSettings

    def pseudo_labels(self, labeled: torch.Tensor, weak: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The maximum of weak probabilities times the ratio of mean ones, labeled over weak, normalized."""
        aligned = weak * (labeled.mean(dim=0) / weak.mean(dim=0).clamp_min(1e-6))
        confidence, targets = (aligned / aligned.sum(dim=1, keepdim=True)).max(dim=1)
        threshold = self.settings.threshold * labeled.max(dim=1).values.mean()
        return targets, (confidence >= threshold).float()
