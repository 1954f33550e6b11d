"""What params can set of the control arm."""

from __future__ import annotations

from dataclasses import dataclass

from histo_monai.semisupervised.students.settings import ByRecipe


@dataclass(frozen=True)
class SupervisedSettings(ByRecipe):
    """Nothing of its own: all is in the recipe."""
