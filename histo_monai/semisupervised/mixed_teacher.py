"""Mixed teacher: MixMatch's mixtures with pseudo labels from the student's weight average.

MixMatch (Berthelot et al. 2019): mixtures of labeled and unlabeled images, sharpened pseudo labels. Mean teacher
(Tarvainen & Valpola 2017) and interpolation consistency (Verma et al. 2019): pseudo labels from one weak view by the
average. The average normalizes by the batch of weak views: running statistics are of mixtures, which have less contrast
than images. ReMixMatch (Berthelot et al. 2020): alignment to the labels' class proportions, and cross-entropy. A step
costs half of MixMatch's. Scores are mixed and not sharpened. Mixing shrinks the spread of pseudo scores, so they are
stretched to the spread of the labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from histo_monai.models.average import ema_weight
from histo_monai.models.batchnorm import statistics_of_the_batch
from histo_monai.semisupervised.protocol import PSEUDO_LABELS, Batch
from histo_monai.semisupervised.settings import MixedTeacherSettings
from histo_monai.semisupervised.students.mixing import Mixing, sharpen
from histo_monai.semisupervised.students.student import Student

MOST_STRETCHED = 3.0
"""Largest factor by which pseudo scores are stretched."""


@dataclass(frozen=True)
class Mixed:
    """Outputs and targets of mixtures, labeled images first.

    Attributes:
        outputs: student outputs (B + n, K).
        targets: (B + n, K), class proportions or scores.
        pseudo_labels: pseudo labels of the unlabeled images, (n, K).
    """

    outputs: torch.Tensor
    targets: torch.Tensor
    pseudo_labels: torch.Tensor


class MixedTeacher(Student):
    """Student on mixtures, with pseudo labels of the weight average."""

    Settings: ClassVar[type] = MixedTeacherSettings
    measures = ("loss", "supervised", "unlabeled", "confidence", PSEUDO_LABELS)

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._num_classes = len(self.objective.classes or ())
        if self._num_classes:
            even = torch.full((self._num_classes,), 1 / self._num_classes)
            self.network.register_buffer("labeled_proportions", even)
            self.network.register_buffer("pseudo_label_proportions", even.clone())
        else:
            self.network.register_buffer("spreads", torch.zeros(3))
        self._mixing: Mixing | None = None
        self._targets = torch.empty(0)

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Labeled views, unlabeled views for pseudo labels, and unlabeled views for mixing."""
        views = []
        for name, images in (
            ("augmentation", batch.labeled),
            ("guess", batch.unlabeled),
            ("mix", batch.unlabeled),
        ):
            self._labeled_views.set_random_state(batch.step.derive_seed(name))
            views.append(self._labeled_views(images).squeeze(1))
        num = len(batch.labeled) + len(batch.unlabeled)
        self._mixing = Mixing.sample(batch.step, num, self.settings.beta, views[0].device)
        is_class = self._num_classes > 0
        self._targets = (
            F.one_hot(batch.targets, self._num_classes).float() if is_class else batch.targets.unsqueeze(1)
        )
        return tuple(views)

    def outputs(self, views: tuple[torch.Tensor, ...]) -> Mixed:
        """Student outputs and targets of mixtures; pseudo labels of the average."""
        labeled, teacher_views, unlabeled = views
        assert self._mixing is not None  # set by `views`
        with torch.no_grad(), statistics_of_the_batch(self.model):
            pseudo_labels = self.objective.predictions(self.model(teacher_views))
            if self._num_classes:
                pseudo_labels = sharpen(self._aligned(pseudo_labels), self.settings.temperature)
            elif self.settings.spread_momentum < 1:
                pseudo_labels = self._stretched(pseudo_labels)
        targets = self._mixing(torch.cat([self._targets, pseudo_labels]))
        return Mixed(
            self.network.student(self._mixing(torch.cat([labeled, unlabeled]))), targets, pseudo_labels
        )

    def measure(self, outputs: Mixed, batch: Batch) -> dict[str, torch.Tensor]:
        """Mean loss of labeled mixtures + weight x mean loss of unlabeled mixtures, shape (1,); and its parts.

        Loss: cross-entropy of classes, squared error of scores. Confidence: largest probability, or the pseudo score.
        """
        given, wanted = outputs.outputs.float(), outputs.targets
        if self._num_classes:
            losses = F.cross_entropy(given, wanted, reduction="none")
        else:
            losses = (given - wanted).square().squeeze(1)
        supervised, unlabeled = losses.split([len(batch.labeled), len(batch.unlabeled)])
        return {
            "loss": (supervised.mean() + self.settings.weight * unlabeled.mean()).unsqueeze(0),
            "supervised": supervised,
            "unlabeled": unlabeled,
            "confidence": outputs.pseudo_labels.max(dim=1).values,
            PSEUDO_LABELS: self.objective.pseudo_labels(outputs.pseudo_labels),
        }

    def _aligned(self, pseudo_labels: torch.Tensor) -> torch.Tensor:
        """Pseudo labels (n, K) times the ratio of average class proportions, labeled over pseudo, normalized."""
        follow = 1 - self.settings.momentum
        proportions = self.network.get_buffer("labeled_proportions").lerp_(self._targets.mean(dim=0), follow)
        of_pseudo_labels = self.network.get_buffer("pseudo_label_proportions").lerp_(
            pseudo_labels.mean(dim=0), follow
        )
        aligned = pseudo_labels * proportions / of_pseudo_labels
        return aligned / aligned.sum(dim=1, keepdim=True)

    def _stretched(self, pseudo_labels: torch.Tensor) -> torch.Tensor:
        """Pseudo scores (n, 1), stretched about their mean to the standard deviation of the labels.

        Standard deviations and mean are exponential averages (`ema_weight`): the first batch replaces the zeros.
        """
        batch = torch.stack(
            [self._targets.std(correction=0), pseudo_labels.std(correction=0), pseudo_labels.mean()]
        )
        decay = ema_weight(self.settings.spread_momentum, self.network.steps_done)
        of_labels, of_pseudo_labels, mean = self.network.get_buffer("spreads").lerp_(batch, 1 - decay)
        stretch = (of_labels / of_pseudo_labels.clamp(min=1e-6)).clamp(1 / MOST_STRETCHED, MOST_STRETCHED)
        return (mean + stretch * (pseudo_labels - mean)).clamp(0, 1)
