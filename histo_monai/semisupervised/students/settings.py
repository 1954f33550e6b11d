"""What params can set of students that train whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from histo_monai.semisupervised.settings import MethodSettings
from histo_monai.settings.recipe import TeachingRecipe
from histo_monai.settings.rules import MicronsPerPixel, NumberOf, Range, Unique


@dataclass(frozen=True)
class StrongRanges:
    """How far strong views depart from their patch, see `transforms.randaugment.strong_operations`.

    Attributes:
        within_limits: magnitudes are limits, within which values are drawn; false: the values themselves.
        affine_scale: departure of the affine magnification from 1, at magnitudes 0 and 10.
        hue: the same of hue, fraction of a full turn.
        blur_mpp: µm/px at which the kernel of the blur counts; None: it counts pixels of the views.
    """

    within_limits: bool
    affine_scale: Annotated[tuple[Annotated[float, Range(0.0, 0.99)], ...], NumberOf(2)]
    hue: Annotated[tuple[Annotated[float, Range(0.0, 0.5)], ...], NumberOf(2)]
    blur_mpp: MicronsPerPixel | None


@dataclass(frozen=True)
class StrongOperations:
    """Which operations strong views get.

    Attributes:
        num: operations of a view.
        magnitudes: smallest and largest, 1..10.
        operations: names of those that are drawn from.
    """

    num: Annotated[int, Range(1, 10)]
    magnitudes: Annotated[tuple[Annotated[int, Range(1, 10)], ...], NumberOf(2)]
    operations: Annotated[tuple[str, ...], Unique()]


@dataclass(frozen=True)
class StrongSettings(StrongRanges, StrongOperations):
    """Strong views of all students but the paper's, whose number of operations is params' `n_aug`."""


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
