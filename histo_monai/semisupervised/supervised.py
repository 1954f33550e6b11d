"""Supervised baseline: steps, views and weight average of the other students, without unlabeled patches."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from histo_monai.finetuning.heads.unlabeled.self_training import HeadData, SelfTrained, labels_alone
from histo_monai.semisupervised.protocol import Batch
from histo_monai.semisupervised.settings import SupervisedSettings
from histo_monai.semisupervised.students.student import Student


class Supervised(Student):
    """Student that learns from labeled views alone."""

    Settings: ClassVar[type] = SupervisedSettings

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._quality = self.objective.MEASURES[1]
        self.measures = ("loss", "supervised", self._quality)

    @staticmethod
    def fit_head(data: HeadData, settings: SupervisedSettings) -> SelfTrained:
        """Head fitted to labels only (`protocol.HeadTeacher`)."""
        return labels_alone(data)

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Labeled views, equal to those of the other methods."""
        self._labeled_views.set_random_state(batch.step.derive_seed("augmentation"))
        return (self._labeled_views(batch.labeled).squeeze(1),)

    def pairs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """Weak and strong views of the other methods, with predictions."""
        return self.predicted(*super().views(batch)[1:])

    def outputs(self, views: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Student outputs of the labeled views."""
        return self.network.student(views[0])

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Mean supervised loss, shape (1,); and its parts."""
        measured = self.objective.measure(outputs, batch.targets)
        return {
            "loss": measured["loss"].mean().unsqueeze(0),
            "supervised": measured["loss"],
            self._quality: measured[self._quality],
        }
