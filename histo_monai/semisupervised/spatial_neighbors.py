"""Spatial neighbors: pseudo labels from the fine-tuned model's predictions of a patch and of its neighbors.

Tissue continues beyond the edge of a patch. So neighbors are evidence from other pixels, which a student's own pseudo
labels are not. Validation patches set the weight of neighbors; it is low where lesions are as small as patches
(`semisupervised.teaching.neighbors`). The student predicts from the patch alone, as all models do.

Pseudo labels are fixed before training. Most tissue is of one class, so patches of rare pseudo labels are sampled more
often: with hard pseudo labels each class equally often, with probabilities rare classes still less often than others.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from histo_monai.semisupervised.protocol import PSEUDO_LABELS, Batch
from histo_monai.semisupervised.settings import SpatialNeighborsSettings
from histo_monai.semisupervised.students.student import Student

_LEAST_PROPORTION = 1e-3
"""Smallest proportion of a class in the sampling probabilities."""


class SpatialNeighbors(Student):
    """Student that learns fixed pseudo labels from spatial neighbors."""

    Settings: ClassVar[type] = SpatialNeighborsSettings
    measures: tuple[str, ...] = ("loss", "supervised", "unlabeled", "confidence", PSEUDO_LABELS)

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._is_class = self.objective.classes is not None
        if self._is_class:
            self.measures = (*self.measures[:-1], "agreement", PSEUDO_LABELS)

    def sampling_probabilities(self, pseudo_labels: torch.Tensor) -> NDArray[np.float64]:
        """Sampling probability of each patch, shape (N,): uniform for scores, higher for rare pseudo labels of classes.

        Probability of a patch: sum over classes of its pseudo-label probability divided by the class's mean
        probability.
        """
        if not self._is_class:
            return np.full(len(pseudo_labels), 1 / len(pseudo_labels))
        probabilities = pseudo_labels.double()
        weights = (probabilities / probabilities.mean(dim=0).clamp(min=_LEAST_PROPORTION)).sum(dim=1)
        return (weights / weights.sum()).numpy()

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Labeled and unlabeled views."""
        views = []
        for name, images in (("augmentation", batch.labeled), ("guess", batch.unlabeled)):
            self._labeled_views.set_random_state(batch.step.derive_seed(name))
            views.append(self._labeled_views(images).squeeze(1))
        return tuple(views)

    def pairs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """Unaugmented views with the average's predictions, augmented views with the student's."""
        return self.predicted(batch.unlabeled.squeeze(1) / 255.0, self.views(batch)[1])

    def measure(self, outputs: tuple[torch.Tensor, ...], batch: Batch) -> dict[str, torch.Tensor]:
        """Mean supervised loss + weight x mean unlabeled loss, shape (1,); and its parts.

        Loss: cross-entropy with pseudo labels of classes, squared error of scores. Confidence: largest probability, or
            the
        pseudo score.
        """
        assert batch.pseudo_labels is not None  # `needs_neighbors` of the settings
        labeled, unlabeled = outputs
        measured = self.objective.measure(labeled, batch.targets)
        given = unlabeled.float()
        if self._is_class:
            losses = F.cross_entropy(given, batch.pseudo_labels, reduction="none")
        else:
            losses = (given - batch.pseudo_labels).square().squeeze(1)
        measures = {
            "loss": (measured["loss"].mean() + self.settings.weight * losses.mean()).unsqueeze(0),
            "supervised": measured["loss"],
            "unlabeled": losses,
            "confidence": batch.pseudo_labels.max(dim=1).values,
            PSEUDO_LABELS: self.objective.pseudo_labels(batch.pseudo_labels),
        }
        if self._is_class:
            measures["agreement"] = (given.argmax(dim=1) == measures[PSEUDO_LABELS]).float()
        return measures
