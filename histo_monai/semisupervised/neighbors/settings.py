"""What params can set of the method of neighbors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from histo_monai.semisupervised.students.settings import UnlabeledWeight
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class NeighborsSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, and `temperature`: of the sharpening of guesses of classes."""

    asks_neighbors: ClassVar[bool] = True

    temperature: Annotated[float, Range(0.01, 10.0)]
