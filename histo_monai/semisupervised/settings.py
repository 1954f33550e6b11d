"""Settings of the semi-supervised methods: sections of `consistency` in params.yaml, read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from histo_monai.utils.settings.recipe import FractionByKind, TeachingRecipe
from histo_monai.utils.settings.rules import Count, MicronsPerPixel, NumberOf, Range, Unique


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


@dataclass(frozen=True)
class PaperSettings(MethodSettings):
    """The loss, the strong views, and which epoch predicts.

    Attributes:
        weight: of the consistency loss; lambda of the paper.
        threshold: confidence below which a pseudo label does not count.
        keep: "best": the epoch of the best validation, the fine-tuned model being epoch 0; "last": the last epoch.
        strong: see `StrongRanges`; a view has `n_aug` of all ten operations, of magnitudes 1 to 10.
    """

    weight: Annotated[float, Range(0.0)]
    threshold: Annotated[float, Range(0.0, 0.999)]
    keep: Literal["best", "last"]
    strong: StrongRanges

    @property
    def keeps_best_epoch(self) -> bool:
        """See `MethodSettings`."""
        return self.keep == "best"


@dataclass(frozen=True)
class SupervisedSettings(ByRecipe):
    """Nothing of its own: all is in the recipe."""


@dataclass(frozen=True)
class AdaBNSettings(ByRecipe):
    """Nothing to set: which patches, and how many, is in the recipe, of which no step is taken."""

    epochs: ClassVar[int] = 0
    interpolation_weights: ClassVar[tuple[float, ...]] = (0.0,)


@dataclass(frozen=True)
class FixMatchSettings(UnlabeledWeight):
    """As `UnlabeledWeight`; `threshold`: probability that a class must have to be a label (published: 0.95)."""

    threshold: Annotated[float, Range(0.0, 0.999)]


@dataclass(frozen=True)
class AdaMatchSettings(UnlabeledWeight):
    """As `UnlabeledWeight`; `threshold`: in parts of the mean confidence of the labeled views (published: 0.9)."""

    threshold: Annotated[float, Range(0.0, 1.0)]


@dataclass(frozen=True)
class FreeMatchSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, and two more.

    Attributes:
        momentum: of the confidence and the class shares that are followed (published: 0.999, in 10^6 steps).
        fairness: weight of the class fairness loss (published: 0.001 to 0.05).
    """

    momentum: Annotated[float, Range(0.0, 0.9999)]
    fairness: Annotated[float, Range(0.0)]


@dataclass(frozen=True)
class SoftMatchSettings(UnlabeledWeight):
    """As `UnlabeledWeight`; `momentum`: of what is followed (published: 0.999, in 10^6 steps)."""

    momentum: Annotated[float, Range(0.0, 0.9999)]


@dataclass(frozen=True)
class MixMatchSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, and three more; `strong` does nothing: there are no such views.

    Attributes:
        temperature: of the sharpening (published: 0.5).
        beta: both parameters of the distribution that mixing weights are drawn from (published: 0.75).
        ramp_steps: in which the weight grows, linearly.
    """

    temperature: Annotated[float, Range(0.01, 10.0)]
    beta: Annotated[float, Range(0.01, 10.0)]
    ramp_steps: Annotated[int, Range(0)]


@dataclass(frozen=True)
class MixedTeacherSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, and four more; `strong` does nothing: there are no such views.

    Attributes:
        temperature: of the sharpening of classes.
        beta: both parameters of the distribution that mixing weights are drawn from.
        momentum: of the class shares that are followed, which guesses are aligned by; 1: guesses are not aligned.
        spread_momentum: the same of the spreads of scores, to which guesses are stretched; 1: they are not stretched.
    """

    temperature: Annotated[float, Range(0.01, 10.0)]
    beta: Annotated[float, Range(0.01, 10.0)]
    momentum: Annotated[float, Range(0.0, 1.0)]
    spread_momentum: Annotated[float, Range(0.0, 1.0)]


@dataclass(frozen=True)
class SpatialNeighborsSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, and three more that stand in place of the recipe's, see `TeachingRecipe`.

    Attributes:
        epochs: what is learned from guesses that do not change bears more steps.
        unaugmented_fraction: of labeled and unlabeled views.
        stain_jitter: of both. A guess is wrong for all patches of a slide together where its stain misleads the model.
    """

    asks_neighbors: ClassVar[bool] = True

    epochs: Count
    unaugmented_fraction: FractionByKind
    stain_jitter: FractionByKind


@dataclass(frozen=True)
class MeanTeacherSettings(UnlabeledWeight):
    """As `UnlabeledWeight`; `ramp_steps`: in which the weight grows, as exp(-5 (1 - t)^2) (Laine & Aila 2017)."""

    ramp_steps: Annotated[int, Range(0)]


@dataclass(frozen=True)
class RankUpSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, where `weight` is that of the order of unlabeled images (published: 0.2), and three more.

    Attributes:
        threshold: probability that one image must have to be the higher one, for a pair to count (published: 0.95).
        ranking: weight of the order of labeled images (published: 0.2).
        alignment: weight of the aligned pseudo scores; 0 leaves them out.
    """

    threshold: Annotated[float, Range(0.5, 0.9999)]
    ranking: Annotated[float, Range(0.0)]
    alignment: Annotated[float, Range(0.0)]
