"""The control arm: steps, views and average of the other methods; nothing is learned from what has no label."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from histo_monai.semisupervised.protocol import Batch
from histo_monai.semisupervised.settings import SupervisedSettings
from histo_monai.semisupervised.students.student import Student


class Supervised(Student):
    """Labeled views alone go through the network and teach. See `Student`."""

    Settings: ClassVar[type] = SupervisedSettings

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._quality = self.objective.MEASURES[1]
        self.measures = ("loss", "supervised", self._quality)

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Those of the labeled patches that the other methods see."""
        self._labeled_views.set_random_state(batch.step.derive_seed("augmentation"))
        return (self._labeled_views(batch.labeled).squeeze(1),)

    def pairs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """Of views that the other methods learn from."""
        return self.predicted(*super().views(batch)[1:])

    def outputs(self, views: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Of the student, of the labeled views."""
        return self.network.student(views[0])

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """The mean supervised loss, shape (1,); and its parts."""
        measured = self.objective.measure(outputs, batch.targets)
        return {
            "loss": measured["loss"].mean().unsqueeze(0),
            "supervised": measured["loss"],
            self._quality: measured[self._quality],
        }
