"""What params can set of FreeMatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.semisupervised.students.settings import UnlabeledWeight
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class FreeMatchSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, and two more.

    Attributes:
        momentum: of the confidence and the class shares that are followed (published: 0.999, in 10^6 steps).
        fairness: weight of the class fairness loss (published: 0.001 to 0.05).
    """

    momentum: Annotated[float, Range(0.0, 0.9999)]
    fairness: Annotated[float, Range(0.0)]
