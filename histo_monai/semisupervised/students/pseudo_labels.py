"""Base of methods with pseudo labels from the student's own weak views.

Labeled, weak and strong views go through the student in one batch. Pseudo labels come from weak views without gradient;
strong views learn them. The average of the student's weights predicts.
"""

from __future__ import annotations

import abc
from typing import Any

import torch
import torch.nn.functional as F

from histo_monai.semisupervised.protocol import PSEUDO_LABELS, Batch
from histo_monai.semisupervised.students.student import Student
from histo_monai.utils.errors import InputError

Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Logits of labeled, weak and strong views, each (n, K)."""


class PseudoLabels(Student):
    """Student with pseudo labels of weak views for strong views.

    Raises:
        InputError: the dataset has scores.
    """

    measures = (
        *("loss", "supervised", "unlabeled", "accuracy", "used", "agreement", "confidence"),
        PSEUDO_LABELS,
    )

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        if self.objective.classes is None:
            raise InputError(
                f"semisupervised_methods: {type(self).__name__.lower()} learns classes, but the dataset has scores. "
                "Fix: use paper or mean_teacher."
            )

    @abc.abstractmethod
    def pseudo_labels(self, labeled: torch.Tensor, weak: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Targets and weights from probabilities of labeled views (B, K) and weak views (n, K).

        Called once a step, without gradient; may update buffers of `network`.

        Returns:
            Targets of strong views (n,), class numbers; and weights (n,), 0..1.
        """

    def measure(self, outputs: Outputs, batch: Batch) -> dict[str, torch.Tensor]:
        """Mean supervised loss + weight x mean unlabeled loss, shape (1,); and its parts."""
        labeled, weak, strong = outputs
        measured = self.objective.measure(labeled, batch.targets)
        with torch.no_grad():
            probabilities = weak.float().softmax(dim=1)
            targets, counts = self.pseudo_labels(labeled.detach().float().softmax(dim=1), probabilities)
        unlabeled = F.cross_entropy(strong.float(), targets, reduction="none") * counts
        loss = measured["loss"].mean() + self.settings.weight * unlabeled.mean()
        return {
            "loss": (loss + self.regularization(strong, counts)).unsqueeze(0),
            "supervised": measured["loss"],
            "unlabeled": unlabeled,
            "accuracy": measured["accuracy"],
            "used": counts,
            "agreement": (strong.argmax(dim=1) == targets).float(),
            "confidence": probabilities.max(dim=1).values,
            PSEUDO_LABELS: targets,
        }

    def regularization(self, strong: torch.Tensor, counts: torch.Tensor) -> torch.Tensor | float:
        """Additional loss term from logits of strong views and their weights; 0 by default."""
        return 0.0
