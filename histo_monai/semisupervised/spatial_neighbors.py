"""Neighbors: a student learns of each unlabeled patch what the fine-tuned model says of it and of all that touch it.

Tissue goes on beyond the edge of a patch, so its neighbors in the slide are witnesses of what it is that do not see the
same pixels; a student of its own guesses hears nothing new. How much they count is what validation patches say, and
where lesions are as small as patches that is little (`semisupervised.teaching.neighbors`). The student has the patch
alone to tell it from, as every model has that predicts patches.

Guesses are made once, before it trains. Most tissue is of one class; patches are drawn so that rarely guessed classes
come more often. Each class comes equally often where guesses are hard, as labels are. With probabilities, a class that
is guessed rarely still comes less often than the others.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from histo_monai.semisupervised.protocol import GUESSES, Batch
from histo_monai.semisupervised.settings import SpatialNeighborsSettings
from histo_monai.semisupervised.students.student import Student

_LEAST_SHARE = 1e-3
"""A class of fewer guesses is not drawn more often than one of so many."""


class SpatialNeighbors(Student):
    """See the module and `Student`."""

    Settings: ClassVar[type] = SpatialNeighborsSettings
    measures: tuple[str, ...] = ("loss", "supervised", "unlabeled", "confidence", GUESSES)

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._is_class = self.objective.classes is not None
        if self._is_class:
            self.measures = (*self.measures[:-1], "agreement", GUESSES)

    def chances(self, guesses: torch.Tensor) -> NDArray[np.float64]:
        """With what probability each patch is drawn, shape (N,): scores evenly, rarely guessed classes more often.

        A patch's chance is the sum over classes of how sure the guess is of it over how often it is guessed. Classes
        are drawn equally often where each guess is sure of one class; the softer the guesses, the less so.
        """
        if not self._is_class:
            return np.full(len(guesses), 1 / len(guesses))
        sure = guesses.double()
        found = (sure / sure.mean(dim=0).clamp(min=_LEAST_SHARE)).sum(dim=1)
        return (found / found.sum()).numpy()

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Of the labeled images, and of the unlabeled."""
        views = []
        for name, images in (("augmentation", batch.labeled), ("guess", batch.unlabeled)):
            self._labeled_views.set_random_state(batch.step.derive_seed(name))
            views.append(self._labeled_views(images).squeeze(1))
        return tuple(views)

    def pairs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """Plain views of the unlabeled patches and what the average predicts of them, changed ones and the student."""
        return self.predicted(batch.unlabeled.squeeze(1) / 255.0, self.views(batch)[1])

    def measure(self, outputs: tuple[torch.Tensor, ...], batch: Batch) -> dict[str, torch.Tensor]:
        """Mean supervised loss + weight times the mean unlabeled one, shape (1,); and its parts.

        Cross-entropy with the guess of classes, squared error of scores; confidence: of the guesses, a score's own
        value.
        """
        assert batch.guesses is not None  # asked for by the settings
        labeled, unlabeled = outputs
        measured = self.objective.measure(labeled, batch.targets)
        given = unlabeled.float()
        if self._is_class:
            losses = F.cross_entropy(given, batch.guesses, reduction="none")
        else:
            losses = (given - batch.guesses).square().squeeze(1)
        found = {
            "loss": (measured["loss"].mean() + self.settings.weight * losses.mean()).unsqueeze(0),
            "supervised": measured["loss"],
            "unlabeled": losses,
            "confidence": batch.guesses.max(dim=1).values,
            GUESSES: self.objective.guesses(batch.guesses),
        }
        if self._is_class:
            found["agreement"] = (given.argmax(dim=1) == found[GUESSES]).float()
        return found
