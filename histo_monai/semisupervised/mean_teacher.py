"""Mean teacher for classes and scores: the student predicts as its weight average (Tarvainen & Valpola 2017)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch

from histo_monai.semisupervised.protocol import PSEUDO_LABELS, Batch
from histo_monai.semisupervised.settings import MeanTeacherSettings
from histo_monai.semisupervised.students.student import Student

Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Outputs (n, K): student on labeled views, average on weak views, student on strong views."""


class MeanTeacher(Student):
    """Squared distance between student predictions (strong views) and average predictions (weak views)."""

    Settings: ClassVar[type] = MeanTeacherSettings

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._quality = self.objective.MEASURES[1]
        self.measures = ("loss", "supervised", "distance", self._quality, PSEUDO_LABELS)

    def outputs(self, views: tuple[torch.Tensor, ...]) -> Outputs:
        """Outputs of student, average and student; the average has no gradient."""
        labeled, weak, strong = views
        with torch.no_grad():
            teacher = self.model(weak)
        of_labeled, student = self.network.student(torch.cat([labeled, strong])).split(
            [len(labeled), len(strong)]
        )
        return of_labeled, teacher, student

    def measure(self, outputs: Outputs, batch: Batch) -> dict[str, torch.Tensor]:
        """Mean supervised loss + ramp x weight x mean squared distance, shape (1,); and its parts."""
        of_labeled, teacher, student = outputs
        measured = self.objective.measure(of_labeled, batch.targets)
        distance = (self._values(student) - self._values(teacher.detach())).square().mean(dim=1)
        weight = self.settings.weight * self._ramp()
        return {
            "loss": (measured["loss"].mean() + weight * distance.mean()).unsqueeze(0),
            "supervised": measured["loss"],
            "distance": distance,
            self._quality: measured[self._quality],
            PSEUDO_LABELS: self.objective.pseudo_labels(teacher),
        }

    def _values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Class probabilities, or unclipped scores, so that scores beyond 0..1 have a gradient."""
        return outputs.float().softmax(dim=1) if self.objective.classes else outputs.float()

    def _ramp(self) -> float:
        steps = self.settings.ramp_steps
        done = min(1.0, self.network.steps_done / steps) if steps else 1.0
        return math.exp(-5 * (1 - done) ** 2)
