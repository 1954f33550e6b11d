"""What the settings of every semi-supervised method tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class MethodSettings:
    """How a method goes, whatever its values are; below it stands what params can set.

    Attributes:
        by_recipe: it trains by `consistency.recipe`, but for what it has itself by the name of a part of that; else as
            the section of the dataset says.
        asks_neighbors: it is given a guess of each unlabeled patch, see `protocol.Batch.guesses`.
    """

    by_recipe: ClassVar[bool] = False
    asks_neighbors: ClassVar[bool] = False

    @property
    def keeps_best_epoch(self) -> bool:
        """Whether the epoch of the best validation predicts, the model it starts from being epoch 0; else the last."""
        return False
