"""What params can set of the method of neighbors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from histo_monai.semisupervised.students.settings import UnlabeledWeight
from histo_monai.settings.rules import Fraction, Range


@dataclass(frozen=True)
class NeighborsSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, and four more, of which three stand in place of the recipe's.

    Attributes:
        temperature: of the sharpening of guesses of classes.
        plain_share: see `Recipe`.
        stain: see `Recipe`. What is learned from guesses is learned from the stains of their slides, too.
        start_share: see `TeachingRecipe`. What the neighbors say is new to the model that it starts from.
    """

    asks_neighbors: ClassVar[bool] = True

    temperature: Annotated[float, Range(0.01, 10.0)]
    plain_share: Fraction
    stain: Fraction
    start_share: Fraction
