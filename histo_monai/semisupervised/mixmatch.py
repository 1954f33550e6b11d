"""MixMatch: sharpened mean predictions as pseudo labels, mixed images and labels (Berthelot et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from histo_monai.semisupervised.protocol import PSEUDO_LABELS, Batch
from histo_monai.semisupervised.settings import MixMatchSettings
from histo_monai.semisupervised.students.mixing import Mixing, sharpen
from histo_monai.semisupervised.students.student import Student
from histo_monai.utils.errors import InputError

NUM_VIEWS = 2
"""Weak views of each unlabeled image (K of the paper)."""


@dataclass(frozen=True)
class Mixed:
    """Outputs and targets of mixed images.

    Attributes:
        labeled: logits (B, K) of mixtures dominated by labeled images, and their targets (B, K).
        unlabeled: logits (n, K) of mixtures dominated by unlabeled images, and their targets (n, K).
        pseudo_labels: pseudo label of each unlabeled image before mixing, (mu B, K).
    """

    labeled: tuple[torch.Tensor, torch.Tensor]
    unlabeled: tuple[torch.Tensor, torch.Tensor]
    pseudo_labels: torch.Tensor


class MixMatch(Student):
    """Algorithm 1 of Berthelot et al. 2019.

    Raises:
        InputError: the dataset has scores.
    """

    Settings: ClassVar[type] = MixMatchSettings
    measures = ("loss", "supervised", "unlabeled", "confidence", PSEUDO_LABELS)

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        if self.objective.classes is None:
            raise InputError(
                "semisupervised_methods: mixmatch learns classes, but the dataset has scores. Fix: use mean_teacher."
            )
        self._targets = torch.empty(0)
        self._mixing: Mixing | None = None

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Labeled views and `NUM_VIEWS` views of each unlabeled image; sets the step's random mixing."""
        self._labeled_views.set_random_state(batch.step.derive_seed("augmentation"))
        labeled = self._labeled_views(batch.labeled).squeeze(1)
        unlabeled = []
        for number in range(NUM_VIEWS):
            self._labeled_views.set_random_state(batch.step.derive_seed(f"view {number}"))
            unlabeled.append(self._labeled_views(batch.unlabeled).squeeze(1))
        num = len(labeled) + NUM_VIEWS * len(unlabeled[0])
        self._mixing = Mixing.sample(batch.step, num, self.settings.beta, labeled.device)
        classes = len(self.objective.classes or ())
        self._targets = F.one_hot(batch.targets, classes).float()
        return labeled, *unlabeled

    def outputs(self, views: tuple[torch.Tensor, ...]) -> Mixed:
        """Student outputs and targets of mixtures, and pseudo labels."""
        labeled, *unlabeled = views
        with torch.no_grad():
            pseudo_labels = [self.network.student(view).float().softmax(dim=1) for view in unlabeled]
        sharpened = sharpen(torch.stack(pseudo_labels).mean(dim=0), self.settings.temperature)
        images = torch.cat(views)
        targets = torch.cat([self._targets, *[sharpened] * len(unlabeled)])
        assert self._mixing is not None  # set by `views`
        logits, wanted, num = self.network.student(self._mixing(images)), self._mixing(targets), len(labeled)
        return Mixed((logits[:num], wanted[:num]), (logits[num:], wanted[num:]), sharpened)

    def measure(self, outputs: Mixed, batch: Batch) -> dict[str, torch.Tensor]:
        """Mean cross-entropy + ramp x weight x mean squared distance, shape (1,); and its parts."""
        logits, wanted = outputs.labeled
        supervised = F.cross_entropy(logits.float(), wanted, reduction="none")
        logits, wanted = outputs.unlabeled
        distance = (logits.float().softmax(dim=1) - wanted).square().mean(dim=1)
        steps = self.settings.ramp_steps
        ramp = min(1.0, self.network.steps_done / steps) if steps else 1.0
        loss = supervised.mean() + self.settings.weight * ramp * distance.mean()
        return {
            "loss": loss.unsqueeze(0),
            "supervised": supervised,
            "unlabeled": distance,
            "confidence": wanted.max(dim=1).values,
            PSEUDO_LABELS: self.objective.pseudo_labels(outputs.pseudo_labels),
        }
