"""What params can set of FixMatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.semisupervised.students.settings import UnlabeledWeight
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class FixMatchSettings(UnlabeledWeight):
    """As `UnlabeledWeight`; `threshold`: probability that a class must have to be a label (published: 0.95)."""

    threshold: Annotated[float, Range(0.0, 0.999)]
