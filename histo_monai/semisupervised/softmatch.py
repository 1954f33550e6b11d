"""SoftMatch: pseudo labels with Gaussian confidence weights and uniform alignment (Chen et al. 2023)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from histo_monai.semisupervised.settings import SoftMatchSettings
from histo_monai.semisupervised.students.pseudo_labels import PseudoLabels

_SIGMAS = 2.0
"""The authors' code divides the variance by its square: a Gaussian of half a standard deviation."""


class SoftMatch(PseudoLabels):
    """Equations 5 to 9 of Chen et al. 2023: truncated Gaussian weights, uniform alignment."""

    Settings: ClassVar[type] = SoftMatchSettings

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        num = len(self.objective.classes or ())
        self.network.register_buffer("mean", torch.tensor(1.0 / num))
        self.network.register_buffer("variance", torch.tensor(1.0))
        self.network.register_buffer("class_proportions", torch.full((num,), 1.0 / num))

    def pseudo_labels(self, labeled: torch.Tensor, weak: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Most probable class, and a weight below 1 where the aligned confidence is below its mean."""
        follow = 1 - self.settings.momentum
        proportions = self.network.get_buffer("class_proportions").lerp_(weak.mean(dim=0), follow)
        aligned = weak / proportions
        confidence = (aligned / aligned.sum(dim=1, keepdim=True)).max(dim=1).values
        mean = self.network.get_buffer("mean").lerp_(confidence.mean(), follow)
        variance = self.network.get_buffer("variance").lerp_(confidence.var(unbiased=True), follow)
        below = (confidence - mean).clamp_max(0.0)
        return weak.argmax(dim=1), torch.exp(-below.square() / (2 * variance / _SIGMAS**2))
