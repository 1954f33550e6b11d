"""What params can set of the paper's consistency training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.semisupervised.settings import MethodSettings
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class PaperSettings(MethodSettings):
    """Weight of the consistency loss (lambda of the paper), and the confidence asked of a pseudo label."""

    weight: Annotated[float, Range(0.0)]
    threshold: Annotated[float, Range(0.0, 0.999)]
