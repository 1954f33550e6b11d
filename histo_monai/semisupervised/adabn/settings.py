"""What params can set of AdaBN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from histo_monai.semisupervised.students.settings import ByRecipe


@dataclass(frozen=True)
class AdaBNSettings(ByRecipe):
    """Nothing of its own: which patches, and how many, is in the recipe."""

    takes_steps: ClassVar[bool] = False
    is_drawn_back: ClassVar[bool] = False
