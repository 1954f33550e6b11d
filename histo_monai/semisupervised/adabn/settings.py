"""What params can set of AdaBN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from histo_monai.semisupervised.students.settings import ByRecipe


@dataclass(frozen=True)
class AdaBNSettings(ByRecipe):
    """Nothing to set: which patches, and how many, is in the recipe, of which no step is taken."""

    epochs: ClassVar[int] = 0
    start_shares: ClassVar[tuple[float, ...]] = (0.0,)
