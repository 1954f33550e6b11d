"""Settings of the semi-supervised methods: sections of `consistency` in params.yaml, read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from histo_monai.utils.settings.recipe import FractionByKind, TeachingRecipe
from histo_monai.utils.settings.rules import Count, MicronsPerPixel, NumberOf, Positive, Range, Unique


@dataclass(frozen=True)
class MethodSettings:
    """Base of a method's settings.

    Attributes:
        by_recipe: whether the method trains by `consistency.recipe`, overridden by its own settings of equal name; else
            by the section of the dataset.
        needs_neighbors: whether batches bring pseudo labels from neighbors (`protocol.Batch.pseudo_labels`).
        finetune_modes: values of `finetune.mode` that the method works with: "all" for networks that train
            (`protocol.SemiSupervised`), "last" and "adapters" if its encoder does not train, "head" for heads on frozen
            features (`protocol.HeadTeacher`).
        reads_diagnoses: whether `HeadData.unlabeled` brings the diagnoses of training slides.
        has_finetuned_head: whether the method's head is always that of the fine-tuning. Then nothing is fitted, and the
            method's file is not imported. It is not inherited, and methods in `own_methods` fit their own head.
    """

    by_recipe: ClassVar[bool] = False
    needs_neighbors: ClassVar[bool] = False
    finetune_modes: ClassVar[tuple[str, ...]] = ("all",)
    reads_diagnoses: ClassVar[bool] = False
    has_finetuned_head: ClassVar[bool] = False

    @property
    def is_finetuned_head(self) -> bool:
        """`has_finetuned_head` of these settings themselves: a method whose settings extend them fits its own head."""
        return bool(vars(type(self)).get("has_finetuned_head", False))

    @property
    def keeps_best_epoch(self) -> bool:
        """Whether the epoch of the best validation predicts (epoch 0: the start model); else the last epoch."""
        return False


@dataclass(frozen=True)
class StrongRanges:
    """Ranges of strong views, for `transforms.randaugment.strong_operations`.

    Attributes:
        within_limits: whether magnitudes are limits of random values; false: the values themselves.
        affine_scale: departure of the affine magnification from 1, at magnitudes 0 and 10.
        hue: departure of hue at magnitudes 0 and 10, fraction of a full turn.
        blur_mpp: µm/px of the blur kernel; None: the kernel is in pixels of the views.
    """

    within_limits: bool
    affine_scale: Annotated[tuple[Annotated[float, Range(0.0, 0.99)], ...], NumberOf(2)]
    hue: Annotated[tuple[Annotated[float, Range(0.0, 0.5)], ...], NumberOf(2)]
    blur_mpp: MicronsPerPixel | None


@dataclass(frozen=True)
class StrongOperations:
    """Operations of strong views.

    Attributes:
        num: operations of a view.
        magnitudes: smallest and largest, 1..10.
        operations: names to select from at random.
    """

    num: Annotated[int, Range(1, 10)]
    magnitudes: Annotated[tuple[Annotated[int, Range(1, 10)], ...], NumberOf(2)]
    operations: Annotated[tuple[str, ...], Unique()]


@dataclass(frozen=True)
class StrongSettings(StrongRanges, StrongOperations):
    """Strong views of all students but the paper's, which has params' `n_aug` operations."""


@dataclass(frozen=True)
class StudentRecipe(TeachingRecipe):
    """`TeachingRecipe` of all students but the paper's; they differ in the loss of unlabeled images alone.

    Attributes:
        strong: strong views.
    """

    strong: StrongSettings


@dataclass(frozen=True)
class ByRecipe(MethodSettings):
    """Settings of a method that trains by `consistency.recipe`."""

    by_recipe: ClassVar[bool] = True


@dataclass(frozen=True)
class UnlabeledWeight(ByRecipe):
    """Settings with `weight`: of the unlabeled loss."""

    weight: Annotated[float, Range(0.0)]


@dataclass(frozen=True)
class PaperSettings(MethodSettings):
    """Loss, strong views, and selection of the epoch that predicts.

    Attributes:
        weight: of the consistency loss; lambda of the paper.
        threshold: confidence below which a pseudo label does not count.
        keep: "best": the epoch of the best validation, the fine-tuned model being epoch 0; "last": the last epoch.
        strong: strong views; each has `n_aug` of all ten operations, of magnitudes 1 to 10.
    """

    finetune_modes: ClassVar[tuple[str, ...]] = ("all", "last", "adapters")

    weight: Annotated[float, Range(0.0)]
    threshold: Annotated[float, Range(0.0, 0.999)]
    keep: Literal["best", "last"]
    strong: StrongRanges

    @property
    def keeps_best_epoch(self) -> bool:
        """Whether `keep` is "best"."""
        return self.keep == "best"


@dataclass(frozen=True)
class SupervisedSettings(ByRecipe):
    """Settings of the supervised baseline: none beside the recipe."""

    finetune_modes: ClassVar[tuple[str, ...]] = ("all", "head")
    has_finetuned_head: ClassVar[bool] = True


@dataclass(frozen=True)
class SelfTrainingSettings(MethodSettings):
    """Self-training of a head (Yarowsky 1995).

    Attributes:
        weight: sum of the weights of all pseudo labels, relative to that of all labels.
        threshold: least probability of a pseudo label.
        propagation: weight of the probabilities of near patches, relative to a patch's own (Zhou et al. 2004); 0: none.
        num_neighbors: near patches of each patch, by cosine of their features.
    """

    finetune_modes: ClassVar[tuple[str, ...]] = ("head",)

    weight: Positive
    threshold: Annotated[float, Range(0.0, 1.0)]
    propagation: Annotated[float, Range(0.0, 0.999)]
    num_neighbors: Count


@dataclass(frozen=True)
class DiagnosesSettings(MethodSettings):
    """Head of labels and diagnoses, selected on simulated lymph nodes with 60 labels and 36 diagnoses.

    Attributes:
        prior: fraction of positive patches on positive slides.
        label_weight: weight of the labeled positive patches among all positive ones.
        negative_label_weight: weight of the labeled negative patches among all negative ones.
        strength: inverse L2 penalty.
    """

    finetune_modes: ClassVar[tuple[str, ...]] = ("head",)
    reads_diagnoses: ClassVar[bool] = True

    prior: Annotated[float, Range(0.001, 0.999)]
    label_weight: Annotated[float, Range(0.001, 0.999)]
    negative_label_weight: Annotated[float, Range(0.001, 0.999)]
    strength: Positive


@dataclass(frozen=True)
class AdaBNSettings(ByRecipe):
    """Settings of AdaBN: the recipe's patches, without a step."""

    epochs: ClassVar[int] = 0
    interpolation_weights: ClassVar[tuple[float, ...]] = (0.0,)
    finetune_modes: ClassVar[tuple[str, ...]] = ("all", "last", "adapters")


@dataclass(frozen=True)
class FixMatchSettings(UnlabeledWeight):
    """`UnlabeledWeight`; `threshold`: least probability of a pseudo label (published: 0.95)."""

    threshold: Annotated[float, Range(0.0, 0.999)]


@dataclass(frozen=True)
class AdaMatchSettings(UnlabeledWeight):
    """`UnlabeledWeight`; `threshold`: fraction of the labeled views' mean confidence (published: 0.9)."""

    threshold: Annotated[float, Range(0.0, 1.0)]


@dataclass(frozen=True)
class FreeMatchSettings(UnlabeledWeight):
    """`UnlabeledWeight` with thresholds that adapt.

    Attributes:
        momentum: of the average confidence and class proportions (published: 0.999, in 10^6 steps).
        fairness: weight of the class fairness loss (published: 0.001 to 0.05).
    """

    momentum: Annotated[float, Range(0.0, 0.9999)]
    fairness: Annotated[float, Range(0.0)]


@dataclass(frozen=True)
class SoftMatchSettings(UnlabeledWeight):
    """`UnlabeledWeight`; `momentum`: of average confidence and class proportions (published: 0.999, in 10^6 steps)."""

    momentum: Annotated[float, Range(0.0, 0.9999)]


@dataclass(frozen=True)
class MixMatchSettings(UnlabeledWeight):
    """`UnlabeledWeight` with mixing; `strong` has no effect.

    Attributes:
        temperature: of the sharpening (published: 0.5).
        beta: both parameters of the Beta distribution of mixing weights (published: 0.75).
        ramp_steps: steps of the weight's linear ramp.
    """

    temperature: Annotated[float, Range(0.01, 10.0)]
    beta: Annotated[float, Range(0.01, 10.0)]
    ramp_steps: Annotated[int, Range(0)]


@dataclass(frozen=True)
class MixedTeacherSettings(UnlabeledWeight):
    """`UnlabeledWeight` with mixing; `strong` has no effect.

    Attributes:
        temperature: of the sharpening of classes.
        beta: both parameters of the Beta distribution of mixing weights.
        momentum: of the class proportions that align pseudo labels; 1: no alignment.
        spread_momentum: of the score spreads that stretch pseudo labels; 1: no stretching.
    """

    temperature: Annotated[float, Range(0.01, 10.0)]
    beta: Annotated[float, Range(0.01, 10.0)]
    momentum: Annotated[float, Range(0.0, 1.0)]
    spread_momentum: Annotated[float, Range(0.0, 1.0)]


@dataclass(frozen=True)
class SpatialNeighborsSettings(UnlabeledWeight):
    """`UnlabeledWeight` with overrides of `TeachingRecipe`.

    Attributes:
        epochs: more than the recipe's, as fixed pseudo labels tolerate more steps.
        unaugmented_fraction: of labeled and unlabeled views.
        stain_jitter: of both. A misleading stain makes all pseudo labels of a slide wrong together.
    """

    needs_neighbors: ClassVar[bool] = True

    epochs: Count
    unaugmented_fraction: FractionByKind
    stain_jitter: FractionByKind


@dataclass(frozen=True)
class MeanTeacherSettings(UnlabeledWeight):
    """`UnlabeledWeight`; `ramp_steps`: steps of the weight's ramp exp(-5 (1 - t)^2) (Laine & Aila 2017)."""

    ramp_steps: Annotated[int, Range(0)]


@dataclass(frozen=True)
class RankUpSettings(UnlabeledWeight):
    """`UnlabeledWeight` with ranking; `weight`: of the ranking of unlabeled images (published: 0.2).

    Attributes:
        threshold: least probability of a pair's order, for the pair to count (published: 0.95).
        ranking: weight of the ranking of labeled images (published: 0.2).
        alignment: weight of the aligned pseudo scores; 0 leaves them out.
    """

    threshold: Annotated[float, Range(0.5, 0.9999)]
    ranking: Annotated[float, Range(0.0)]
    alignment: Annotated[float, Range(0.0)]
