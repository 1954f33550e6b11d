"""What params can set of SoftMatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.semisupervised.students.settings import UnlabeledWeight
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class SoftMatchSettings(UnlabeledWeight):
    """As `UnlabeledWeight`; `momentum`: of what is followed (published: 0.999, in 10^6 steps)."""

    momentum: Annotated[float, Range(0.0, 0.9999)]
