"""Sections of params.yaml as frozen dataclasses without defaults."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from histo_monai.data.readers.registry import DATASETS
from histo_monai.data.readers.settings import CorpusSettings, IndexSettings, MapSettings, PhantomSettings
from histo_monai.models.settings import EncoderSettings
from histo_monai.pipeline.params.head_sections import FinetuneMode, HeadParams
from histo_monai.pipeline.params.slide_sections import AggregateParams, FeaturesParams, HeatmapParams
from histo_monai.pretraining import PRETEXTS
from histo_monai.pretraining.settings import PretextSettings
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.settings import StrongSettings, StudentRecipe
from histo_monai.utils.settings.by_name import SectionByName, value_for
from histo_monai.utils.settings.recipe import LABEL_KINDS, LabelKind, Recipe, TeachingRecipe
from histo_monai.utils.settings.rules import (
    ByName,
    Count,
    CountOrZero,
    Fraction,
    MicronsPerPixel,
    Milestones,
    NamedIn,
    Positive,
    Range,
    SectionsOf,
    Seed,
    Seeds,
    Unique,
)
from histo_monai.wsi.mil.settings import MilSettings


@dataclass(frozen=True)
class CheckParams:
    """Settings of the input page; `num_pictures`: slides with a picture."""

    num_pictures: CountOrZero


@dataclass(frozen=True)
class ReportParams:
    """Settings of the report's slide viewer.

    Attributes:
        num_slides: slides in the viewer, largest diagnosis errors first.
        slide_mpp: finest µm/px.
        max_side_px: longest side; a larger slide is shown at a coarser µm/px.
    """

    num_slides: CountOrZero
    slide_mpp: MicronsPerPixel
    max_side_px: Count


@dataclass(frozen=True)
class AugmentationParams:
    """Probability of each pretraining augmentation (Srinidhi 2022, section 3.1)."""

    prob: Fraction


@dataclass(frozen=True)
class PretrainParams:
    """Self-supervised pretraining: augmentation, and a section per method.

    Attributes:
        freeze_batchnorm: whether batch-norms of the encoder keep their statistics; None: where the encoder has given
            weights.
    """

    augmentation: AugmentationParams
    freeze_batchnorm: bool | None
    methods: Annotated[Mapping[str, PretextSettings], SectionsOf(PRETEXTS, beside=True)]


@dataclass(frozen=True)
class TrainingParams:
    """Training by the Srinidhi 2022 protocol.

    "sgd" has Nesterov momentum 0.9, "adam" betas 0.9 and 0.999; the learning rate is multiplied by 0.1 at `milestones`.
    `unaugmented_fraction`: fraction of labeled views without augmentation.
    """

    batchnorm_patches: ClassVar[int] = 0
    """0: statistics of training."""
    match_class_proportions: ClassVar[bool] = False
    """The student's predictions are not adjusted."""
    interpolation_weights: ClassVar[tuple[float, ...]] = (0.0,)
    """Trained weights only."""

    epochs: Count
    batch_size: Count
    optimizer: Literal["adam", "sgd"]
    lr: Positive
    weight_decay: Annotated[float, Range(0.0)]
    milestones: Milestones
    unaugmented_fraction: Fraction


def _by_dataset() -> ByName:
    """Rule of a training section whose values may differ by dataset."""
    return ByName(TrainingParams, NamedIn(DATASETS, with_="LabelSettings"))


@dataclass(frozen=True)
class CrossValidationParams:
    """Cross-validation on the labels by patient; `num_folds`: maximum number of folds."""

    num_folds: Annotated[int, Range(2)]


@dataclass(frozen=True)
class FinetuneRecipe(Recipe):
    """Recipe of a fine-tuning.

    Attributes:
        batchnorm_patches: unaugmented training patches for the final batch-norm statistics, without their labels; 0:
            statistics of the training; None: `models.batchnorm.patches_for_statistics`.
        select_depth: whether cross-validation selects the encoder's depth; else, and for encoders without stages, it is
            the full depth.
        linear_init: whether the head's last layer starts as a linear model fitted to the labels.
        interpolation_weights: candidate weights of the initial model (before the first step) in the mean with the
            trained model.
    """

    batchnorm_patches: CountOrZero | None
    select_depth: bool
    linear_init: bool
    interpolation_weights: Annotated[tuple[Fraction, ...], Unique()]


@dataclass(frozen=True)
class FinetuneParams:
    """Fine-tuning.

    Attributes:
        mode: "all": all layers train, by `recipe` or `paper`. "last": the head and the last stage or block. "adapters":
            the head and adapters of low rank (transformers), or batch-norms and the last stage. "head": a head is
            fitted to stored features.
        head: for the mode "head".
        recipe: by kind of labels; None: `paper`.
        paper: by dataset.
    """

    mode: FinetuneMode
    head: HeadParams
    recipe: Annotated[SectionByName[FinetuneRecipe], ByName(FinetuneRecipe, LABEL_KINDS)] | None
    paper: Annotated[SectionByName[TrainingParams], _by_dataset()]


@dataclass(frozen=True)
class ConsistencyParams:
    """Semi-supervised training: schedules, and settings of each method.

    Students train by `recipe` (by kind of labels), the student `paper` by `paper` (by dataset). `batch_size` counts
    labeled images; each comes with mu unlabeled ones. `strong`: strong views of the unlabeled images.
    """

    recipe: Annotated[SectionByName[TeachingRecipe], ByName(TeachingRecipe, LABEL_KINDS)]
    strong: StrongSettings
    methods: Annotated[Mapping[str, Any], SectionsOf(METHODS)]
    paper: Annotated[SectionByName[TrainingParams], _by_dataset()]


@dataclass(frozen=True)
class EvaluateParams:
    """Bootstrap seed, and number of images per prediction batch."""

    seed: Seed
    batch_size: Count


@dataclass(frozen=True)
class CompareParams:
    """Bootstrap seed and number of replicates, common to all models."""

    seed: Seed
    num_replicates: Annotated[int, Range(100)]


@dataclass(frozen=True)
class SlideLevelParams:
    """Methods whose models map and diagnose slides.

    `num_encoders`: encoders per method, in the order of `pretraining_seeds`; None for all.
    """

    pretraining_methods: Annotated[tuple[Annotated[str, NamedIn(PRETEXTS)], ...], Unique(at_least=0)]
    semisupervised_methods: Annotated[tuple[Annotated[str, NamedIn(METHODS)], ...], Unique(at_least=0)]
    num_encoders: Count | None


@dataclass(frozen=True)
class Params:
    """Params of one experiment."""

    source: Literal["phantom", "raw"]
    dataset: Annotated[str, NamedIn(DATASETS)]
    pretraining_dataset: Annotated[str, NamedIn(DATASETS, with_="CorpusSettings")]
    pretraining_methods: Annotated[tuple[Annotated[str, NamedIn(PRETEXTS)], ...], Unique()]
    semisupervised_methods: Annotated[tuple[Annotated[str, NamedIn(METHODS)], ...], Unique()]
    pretraining_seeds: Seeds
    training_seeds: Seeds
    alpha: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    mu: Count
    n_aug: Annotated[int, Range(1, 10)]
    patch_px: Annotated[int, Range(32, 2048)]
    encoder: EncoderSettings
    slide_level: SlideLevelParams
    corpora: Annotated[Mapping[str, CorpusSettings], SectionsOf(DATASETS, "CorpusSettings")]
    labels: Annotated[Mapping[str, Any], SectionsOf(DATASETS, "LabelSettings")]
    phantom: PhantomSettings
    index: IndexSettings
    check: CheckParams
    pretrain: PretrainParams
    finetune: FinetuneParams
    consistency: ConsistencyParams
    evaluate: EvaluateParams
    cross_validation: CrossValidationParams
    heatmap: HeatmapParams
    aggregate: AggregateParams
    features: FeaturesParams
    mil: MilSettings
    compare: CompareParams
    report: ReportParams

    @property
    def repeats(self) -> tuple[tuple[int, int], ...]:
        """(pretraining seed, training seed) of each run of a method and a student."""
        return tuple(itertools.product(self.pretraining_seeds, self.training_seeds))

    @property
    def corpus_section(self) -> CorpusSettings:
        """The section of `corpora` that `pretraining_dataset` names."""
        return self.corpora[self.pretraining_dataset]

    @property
    def labels_section(self) -> Any:
        """The section of `labels` that `dataset` names, its `LabelSettings`."""
        return self.labels[self.dataset]

    @property
    def field(self) -> int:
        """Side of a model's input, in sides of a patch; networks that train see the patch alone."""
        return self.features.field if self.finetune.mode == "head" else 1

    @property
    def input_px(self) -> int:
        """Side of a model's input."""
        return self.patch_px * self.field

    @property
    def is_validation_separate(self) -> bool:
        """Whether a labeled validation set selects models; else cross-validation on the training labels."""
        return bool(self.labels_section.validation == "separate")

    def finetune_section(self, kind: LabelKind) -> TrainingParams | FinetuneRecipe:
        """Fine-tuning recipe of a kind of labels; if null, the Srinidhi 2022 values of `dataset`."""
        if self.finetune.recipe is None:
            return self.finetune.paper.of(self.dataset)
        return self.finetune.recipe.of(kind)

    def student_recipe(self, student: str, kind: LabelKind) -> StudentRecipe:
        """Recipe of a student with strong views. Method settings override recipe settings of the same name."""
        recipe = StudentRecipe(
            **dataclasses.asdict(self.consistency.recipe.of(kind)), strong=self.consistency.strong
        )
        settings = self.consistency.methods[student]
        own = {name: getattr(settings, name) for name in vars(recipe) if hasattr(settings, name)}
        return dataclasses.replace(recipe, **{name: value_for(value, kind) for name, value in own.items()})

    def student_section(self, student: str, kind: LabelKind) -> TrainingParams | StudentRecipe:
        """Schedule of a semi-supervised method: recipe, or Srinidhi 2022 values."""
        if self.consistency.methods[student].by_recipe:
            return self.student_recipe(student, kind)
        return self.consistency.paper.of(self.dataset)

    @property
    def heatmap_section(self) -> MapSettings | None:
        """The section of `heatmap` that `dataset` names; None if no slides are mapped."""
        return self.heatmap.datasets.get(self.dataset) if all(self.mapping) else None

    @property
    def mapping(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Pretraining methods and semi-supervised methods whose models map slides."""
        of = self.slide_level
        return (
            tuple(method for method in self.pretraining_methods if method in of.pretraining_methods),
            tuple(student for student in self.semisupervised_methods if student in of.semisupervised_methods),
        )

    @property
    def mapping_encoders(self) -> tuple[int, ...]:
        """Pretraining seeds whose encoders map slides."""
        return self.pretraining_seeds[: self.slide_level.num_encoders]

    @property
    def mapped_repeats(self) -> tuple[tuple[int, int], ...]:
        """(pretraining seed, training seed) of the runs that map slides."""
        return tuple(itertools.product(self.mapping_encoders, self.training_seeds))

    def is_mapped_by(self, method: str, encoder: int, student: str) -> bool:
        """Whether the models of a run map the dataset's slides."""
        methods, students = self.mapping
        is_asked = method in methods and student in students and encoder in self.mapping_encoders
        return self.heatmap_section is not None and is_asked

    def learns_from_slides(self, method: str, encoder: int | None = None) -> bool:
        """Whether an encoder of a method (None: any encoder) learns from slide labels."""
        has_slides = DATASETS[self.dataset].MapSettings is not None
        return (
            method in self.mapping[0] and has_slides and (encoder is None or encoder in self.mapping_encoders)
        )

    @property
    def positive_class(self) -> str:
        """Slide label to diagnose."""
        section = self.heatmap.datasets.get(self.dataset)
        return (section.positive_class if section else None) or "tumor"
