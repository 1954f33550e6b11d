"""AdaMatch: FixMatch with a relative threshold and distribution alignment (Berthelot et al. 2022)."""

from __future__ import annotations

from typing import ClassVar

import torch

from histo_monai.semisupervised.settings import AdaMatchSettings
from histo_monai.semisupervised.students.pseudo_labels import PseudoLabels


class AdaMatch(PseudoLabels):
    """Equations of section 3.3: distribution alignment, relative confidence threshold.

    The random interpolation of logits is left out: it compares two batch compositions, and all views are one batch
    here.
    """

    Settings: ClassVar[type] = AdaMatchSettings

    def pseudo_labels(self, labeled: torch.Tensor, weak: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Most probable class after alignment, and a 0/1 weight by the relative threshold.

        Aligned probabilities: weak ones times the ratio of means, labeled over weak, normalized.
        """
        aligned = weak * (labeled.mean(dim=0) / weak.mean(dim=0).clamp_min(1e-6))
        confidence, targets = (aligned / aligned.sum(dim=1, keepdim=True)).max(dim=1)
        threshold = self.settings.threshold * labeled.max(dim=1).values.mean()
        return targets, (confidence >= threshold).float()
