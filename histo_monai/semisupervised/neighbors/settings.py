"""What params can set of the method of neighbors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from histo_monai.semisupervised.students.settings import UnlabeledWeight
from histo_monai.settings.recipe import FractionByKind
from histo_monai.settings.rules import Count


@dataclass(frozen=True)
class NeighborsSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, and three more that stand in place of the recipe's, see `TeachingRecipe`.

    Attributes:
        epochs: what is learned from guesses that do not change bears more steps.
        plain_share: of labeled and unlabeled views.
        stain: of both. A guess is wrong for all patches of a slide together where its stain misleads the model.
    """

    asks_neighbors: ClassVar[bool] = True

    epochs: Count
    plain_share: FractionByKind
    stain: FractionByKind
