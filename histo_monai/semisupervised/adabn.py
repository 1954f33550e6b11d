"""AdaBN: batch-norm statistics from unlabeled patches, unchanged weights (Li et al. 2016)."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from histo_monai.semisupervised.protocol import Batch
from histo_monai.semisupervised.settings import AdaBNSettings
from histo_monai.semisupervised.students.student import Student

_LOG = logging.getLogger(__name__)


class AdaBN(Student):
    """Student of zero steps: batch-norm statistics of unaugmented patches and the model's class proportions.

    All students end with this update, so AdaBN measures what their training adds.
    """

    Settings: ClassVar[type] = AdaBNSettings
    measures = ("loss",)

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        if not any(isinstance(module, _BatchNorm) for module in self.model.modules()):
            _LOG.warning(
                "adabn: the model has no batch-norm, so the student equals the model. Fix: remove adabn from "
                "`semisupervised_methods`."
            )

    def measure(self, outputs: tuple[torch.Tensor, ...], batch: Batch) -> dict[str, torch.Tensor]:
        """Mean loss of labeled views, shape (1,)."""
        return {"loss": self.objective.measure(outputs[0], batch.targets)["loss"].mean().unsqueeze(0)}
