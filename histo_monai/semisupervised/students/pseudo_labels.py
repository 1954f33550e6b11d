"""What methods share that train on pseudo labels: a network says what it sees in weak views, and learns it from strong.

Labeled, weak and strong views go through the student in one batch; pseudo labels come from its own outputs of the weak
views, without gradient. The average of its weights predicts.
"""

from __future__ import annotations

import abc
from typing import Any

import torch
import torch.nn.functional as F

from histo_monai.semisupervised.protocol import GUESSES, Batch
from histo_monai.semisupervised.students.student import Student
from histo_monai.utils.errors import InputError

Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Logits of labeled, weak and strong views, each (n, K)."""


class PseudoLabels(Student):
    """See the module and `Student`.

    Raises:
        InputError: scores are asked for.
    """

    measures = ("loss", "supervised", "unlabeled", "accuracy", "used", "agreement", "confidence", GUESSES)

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        if self.objective.classes is None:
            raise InputError(
                f"semisupervised_methods: {type(self).__name__.lower()} learns classes, and the dataset has scores; "
                f"take paper or "
                "mean_teacher"
            )

    @abc.abstractmethod
    def pseudo_labels(self, labeled: torch.Tensor, weak: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities of the labeled views (B, K) and of the weak ones (n, K) -> targets and weights.

        Called once a step, without gradient; may follow statistics in buffers of `network`.

        Returns:
            What strong views shall be, (n,) class numbers; and how much each counts, (n,), 0..1.
        """

    def measure(self, outputs: Outputs, batch: Batch) -> dict[str, torch.Tensor]:
        """Mean supervised loss + weight times the mean unlabeled one, shape (1,); and its parts."""
        labeled, weak, strong = outputs
        measured = self.objective.measure(labeled, batch.targets)
        with torch.no_grad():
            seen = weak.float().softmax(dim=1)
            targets, counts = self.pseudo_labels(labeled.detach().float().softmax(dim=1), seen)
        unlabeled = F.cross_entropy(strong.float(), targets, reduction="none") * counts
        loss = measured["loss"].mean() + self.settings.weight * unlabeled.mean()
        return {
            "loss": (loss + self.regularization(strong, counts)).unsqueeze(0),
            "supervised": measured["loss"],
            "unlabeled": unlabeled,
            "accuracy": measured["accuracy"],
            "used": counts,
            "agreement": (strong.argmax(dim=1) == targets).float(),
            "confidence": seen.max(dim=1).values,
            GUESSES: targets,
        }

    def regularization(self, strong: torch.Tensor, counts: torch.Tensor) -> torch.Tensor | float:
        """What a method adds to the loss, of logits of strong views and their weights; nothing, unless it says so."""
        return 0.0
