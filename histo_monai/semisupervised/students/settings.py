"""What params can set of students that train whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from histo_monai.semisupervised.settings import MethodSettings
from histo_monai.settings.recipe import TeachingRecipe
from histo_monai.settings.rules import NumberOf, Range, Unique


@dataclass(frozen=True)
class StrongSettings:
    """Strong views, see `transforms.randaugment`; params' `n_aug` is that of the paper's student alone.

    Attributes:
        num: operations of a view.
        magnitudes: smallest and largest, 1..10.
        operations: names of those that are drawn from.
        within_limits: magnitudes are limits, within which values are drawn; false: the values themselves.
        affine_scale: departure of the affine magnification from 1, at magnitudes 0 and 10.
        hue: the same of hue, fraction of a full turn.
    """

    num: Annotated[int, Range(1, 10)]
    magnitudes: Annotated[tuple[Annotated[int, Range(1, 10)], ...], NumberOf(2)]
    operations: Annotated[tuple[str, ...], Unique()]
    within_limits: bool
    affine_scale: Annotated[tuple[Annotated[float, Range(0.0, 0.99)], ...], NumberOf(2)]
    hue: Annotated[tuple[Annotated[float, Range(0.0, 0.5)], ...], NumberOf(2)]


@dataclass(frozen=True)
class StudentRecipe(TeachingRecipe):
    """As `TeachingRecipe`, for all but the paper's: they differ in what they learn from unlabeled images alone.

    Attributes:
        strong: see `StrongSettings`.
    """

    strong: StrongSettings


@dataclass(frozen=True)
class ByRecipe(MethodSettings):
    """Of a method that trains by `consistency.recipe`, as long and as fast as all others, or without a step."""

    by_recipe: ClassVar[bool] = True


@dataclass(frozen=True)
class UnlabeledWeight(ByRecipe):
    """`weight`: of the unlabeled loss."""

    weight: Annotated[float, Range(0.0)]
