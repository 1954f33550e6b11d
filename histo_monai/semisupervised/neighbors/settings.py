"""What params can set of the method of neighbors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from histo_monai.semisupervised.students.settings import UnlabeledWeight
from histo_monai.settings.rules import Fraction, Range


@dataclass(frozen=True)
class NeighborsSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, and two more.

    Attributes:
        temperature: of the sharpening of guesses of classes.
        stain: largest change of the stains of unlabeled views, see `transforms.supervised.stains`; labeled ones have
            that of the recipe.
    """

    is_drawn_back: ClassVar[bool] = False
    asks_neighbors: ClassVar[bool] = True

    temperature: Annotated[float, Range(0.01, 10.0)]
    stain: Fraction
