"""What the settings of every semi-supervised method tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class MethodSettings:
    """How a method goes, whatever its values are; below it stands what params can set.

    Attributes:
        by_recipe: it trains by `consistency.recipe`; else as the section of the dataset says.
        takes_steps: it trains at all.
        is_drawn_back: the recipe's `start_share` counts; a student that hears what its start does not know is not.
        asks_neighbors: it is given a guess of each unlabeled patch, see `protocol.Batch.guesses`.
    """

    by_recipe: ClassVar[bool] = False
    takes_steps: ClassVar[bool] = True
    is_drawn_back: ClassVar[bool] = True
    asks_neighbors: ClassVar[bool] = False
