"""AdaBN: weights stay, and batch-norms take their statistics from unlabeled patches (Li et al. 2016).

What all students end with is all that happens here: statistics of patches that are not augmented, and the model's own
shares of them. It costs a pass over these, and tells what the steps of the others add to it.
"""

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
    """See the module and `Student`; no step is taken, and where one is, it learns from labels alone."""

    Settings: ClassVar[type] = AdaBNSettings
    measures = ("loss",)

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        if not any(isinstance(module, _BatchNorm) for module in self.model.modules()):
            _LOG.warning(
                "adabn: the model has no batch-norm, so its student is the model itself; leave it out of "
                "`semisupervised_methods`"
            )

    def measure(self, outputs: tuple[torch.Tensor, ...], batch: Batch) -> dict[str, torch.Tensor]:
        """The mean loss of labeled views, shape (1,)."""
        return {"loss": self.objective.measure(outputs[0], batch.targets)["loss"].mean().unsqueeze(0)}
