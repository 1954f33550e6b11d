"""Mixed teacher: MixMatch's mixtures with pseudo labels from the student's weight average.

MixMatch (Berthelot et al. 2019): mixtures of labeled and unlabeled images, sharpened pseudo labels. Mean teacher
(Tarvainen & Valpola 2017) and interpolation consistency (Verma et al. 2019): pseudo labels from one weak view by the
average. The average normalizes by the batch of weak views: running statistics are of mixtures, which have less contrast
than images. ReMixMatch (Berthelot et al. 2020): alignment to the labels' class proportions, and cross-entropy. A step
costs half of MixMatch's. Scores are mixed and not sharpened. Mixing draws pseudo scores together, so they are
stretched to the spread of the labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from histo_monai.models.average import kept_share
from histo_monai.models.batchnorm import statistics_of_the_batch
from histo_monai.semisupervised.protocol import GUESSES, Batch
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
        guesses: pseudo labels of the unlabeled images, (n, K).
    """

    outputs: torch.Tensor
    targets: torch.Tensor
    guesses: torch.Tensor


class MixedTeacher(Student):
    """Student on mixtures, with pseudo labels of the weight average."""

    Settings: ClassVar[type] = MixedTeacherSettings
    measures = ("loss", "supervised", "unlabeled", "confidence", GUESSES)

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._num_classes = len(self.objective.classes or ())
        if self._num_classes:
            even = torch.full((self._num_classes,), 1 / self._num_classes)
            self.network.register_buffer("labeled_shares", even)
            self.network.register_buffer("guessed_shares", even.clone())
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
        self._mixing = Mixing.draw(batch.step, num, self.settings.beta, views[0].device)
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
            guesses = self.objective.predictions(self.model(teacher_views))
            if self._num_classes:
                guesses = sharpen(self._aligned(guesses), self.settings.temperature)
            elif self.settings.spread_momentum < 1:
                guesses = self._stretched(guesses)
        targets = self._mixing(torch.cat([self._targets, guesses]))
        return Mixed(self.network.student(self._mixing(torch.cat([labeled, unlabeled]))), targets, guesses)

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
            "confidence": outputs.guesses.max(dim=1).values,
            GUESSES: self.objective.guesses(outputs.guesses),
        }

    def _aligned(self, guesses: torch.Tensor) -> torch.Tensor:
        """Pseudo labels (n, K) times the ratio of average class proportions, labeled over pseudo, normalized."""
        follow = 1 - self.settings.momentum
        shares = self.network.get_buffer("labeled_shares").lerp_(self._targets.mean(dim=0), follow)
        guessed = self.network.get_buffer("guessed_shares").lerp_(guesses.mean(dim=0), follow)
        raised = guesses * shares / guessed
        return raised / raised.sum(dim=1, keepdim=True)

    def _stretched(self, guesses: torch.Tensor) -> torch.Tensor:
        """Pseudo scores (n, 1), stretched about their mean to the standard deviation of the labels.

        Standard deviations and mean are exponential averages (`kept_share`): the first batch replaces the zeros.
        """
        batch = torch.stack([self._targets.std(correction=0), guesses.std(correction=0), guesses.mean()])
        decay = kept_share(self.settings.spread_momentum, self.network.steps_done)
        of_labels, of_guesses, mean = self.network.get_buffer("spreads").lerp_(batch, 1 - decay)
        stretch = (of_labels / of_guesses.clamp(min=1e-6)).clamp(1 / MOST_STRETCHED, MOST_STRETCHED)
        return (mean + stretch * (guesses - mean)).clamp(0, 1)
