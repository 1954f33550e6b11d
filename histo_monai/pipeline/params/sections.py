"""The sections of params.yaml as frozen dataclasses, without defaults: what a run used is what the file says."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from histo_monai.data.readers.registry import DATASETS
from histo_monai.data.readers.settings import CorpusSettings, IndexSettings, MapSettings, PhantomSettings
from histo_monai.models.settings import EncoderSettings
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
    """The page that shows what will be trained on: of how many slides a picture."""

    num_pictures: CountOrZero


@dataclass(frozen=True)
class ReportParams:
    """The page of the whole run: how many slides can be panned and zoomed in, and how finely.

    Attributes:
        num_slides: in the viewer, those first that a diagnosis is farthest off on.
        slide_mpp: their finest micrometers per pixel.
        max_side_px: a larger slide is shown coarser.
    """

    num_slides: CountOrZero
    slide_mpp: MicronsPerPixel
    max_side_px: Count


@dataclass(frozen=True)
class AugmentationParams:
    """How likely each operation of the pretraining augmentation is (paper: section 1 of the method)."""

    prob: Fraction


@dataclass(frozen=True)
class PretrainParams:
    """Self-supervised pretraining: beside augmentation a section for each method, at least those in use.

    Every method has an encoder of each of `pretraining_seeds`.
    """

    augmentation: AugmentationParams
    methods: Annotated[Mapping[str, PretextSettings], SectionsOf(PRETEXTS, beside=True)]


@dataclass(frozen=True)
class TrainingParams:
    """A training with labels. "sgd" has Nesterov momentum 0.9, "adam" betas 0.9 and 0.999; lr x 0.1 at `milestones`.

    `unaugmented_fraction`: fraction of labeled views that are not augmented.
    """

    batchnorm_patches: ClassVar[int] = 0
    """As in `Recipe`: the statistics of training stay."""
    match_class_proportions: ClassVar[bool] = False
    """As in `TeachingRecipe`."""
    interpolation_weights: ClassVar[tuple[float, ...]] = (0.0,)
    """Likewise."""

    epochs: Count
    batch_size: Count
    optimizer: Literal["adam", "sgd"]
    lr: Positive
    weight_decay: Annotated[float, Range(0.0)]
    milestones: Milestones
    unaugmented_fraction: Fraction


def _by_dataset() -> ByName:
    """A training whose values may differ by dataset."""
    return ByName(TrainingParams, NamedIn(DATASETS, with_="LabelSettings"))


@dataclass(frozen=True)
class CrossValidationParams:
    """Cross-validation on the labels, patients apart: into how many folds these are dealt, at most."""

    num_folds: Annotated[int, Range(2)]


@dataclass(frozen=True)
class FinetuneRecipe(Recipe):
    """As `Recipe`, of models that start from a pretrained encoder.

    Attributes:
        select_depth: whether cross-validation on the labels chooses how much of the encoder is kept, see
            `select_depth`; where not, and where the encoder has no stages to end after, it is all of it.
        linear_init: whether the head's last layer starts as a linear model of the labels, see `probe_head`.
        interpolation_weights: as in `TeachingRecipe`; the start is the encoder with its head before the first step.
    """

    select_depth: bool
    linear_init: bool
    interpolation_weights: Annotated[tuple[Fraction, ...], Unique()]


@dataclass(frozen=True)
class FinetuneParams:
    """Fine-tuning: by `recipe`, whose values may differ by kind of labels.

    Where that is None, by `paper`, whose values may differ by dataset.
    """

    recipe: Annotated[SectionByName[FinetuneRecipe], ByName(FinetuneRecipe, LABEL_KINDS)] | None
    paper: Annotated[SectionByName[TrainingParams], _by_dataset()]


@dataclass(frozen=True)
class ConsistencyParams:
    """Semi-supervised training: settings of each method, and how long and fast.

    All students but the paper's train by `recipe`, whose values may differ by kind of labels. The paper's trains by
    `paper`, whose values may differ by dataset.
    `batch_size` counts labeled images; mu times as many unlabeled ones come with them. `strong`: views of the former.
    """

    recipe: Annotated[SectionByName[TeachingRecipe], ByName(TeachingRecipe, LABEL_KINDS)]
    strong: StrongSettings
    methods: Annotated[Mapping[str, Any], SectionsOf(METHODS)]
    paper: Annotated[SectionByName[TrainingParams], _by_dataset()]


@dataclass(frozen=True)
class EvaluateParams:
    """Seed of the bootstrap, and how many images to predict at a time."""

    seed: Seed
    batch_size: Count


@dataclass(frozen=True)
class CompareParams:
    """Seed and number of replicates of the bootstrap that all models share."""

    seed: Seed
    num_replicates: Annotated[int, Range(100)]


@dataclass(frozen=True)
class SlideLevelParams:
    """Whose models map and diagnose slides: runs of these methods of pretraining and these semi-supervised methods.

    `num_encoders`: of each method so many, the first of `pretraining_seeds`; None for all.
    """

    pretraining_methods: Annotated[tuple[Annotated[str, NamedIn(PRETEXTS)], ...], Unique(at_least=0)]
    semisupervised_methods: Annotated[tuple[Annotated[str, NamedIn(METHODS)], ...], Unique(at_least=0)]
    num_encoders: Count | None


@dataclass(frozen=True)
class Params:
    """One experiment."""

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
        """Seed of the encoder and seed of what comes after it, of each run of a method and a student."""
        return tuple(itertools.product(self.pretraining_seeds, self.training_seeds))

    @property
    def corpus_section(self) -> CorpusSettings:
        """The section of `corpora` that `pretraining_dataset` names."""
        return self.corpora[self.pretraining_dataset]

    @property
    def labels_section(self) -> Any:
        """The section of `labels` that `dataset` names: what the dataset's `LabelSettings` says."""
        return self.labels[self.dataset]

    @property
    def is_validation_separate(self) -> bool:
        """Whether further labeled patches choose; else cross-validation inside the labels."""
        return bool(self.labels_section.validation == "separate")

    def finetune_section(self, kind: LabelKind) -> TrainingParams | FinetuneRecipe:
        """The recipe of a kind of labels; where `finetune.recipe` is null, the paper's values for `dataset`."""
        if self.finetune.recipe is None:
            return self.finetune.paper.of(self.dataset)
        return self.finetune.recipe.of(kind)

    def student_recipe(self, student: str, kind: LabelKind) -> StudentRecipe:
        """The recipe of a kind of labels with its strong views; what a method has of it stands in its place."""
        recipe = StudentRecipe(
            **dataclasses.asdict(self.consistency.recipe.of(kind)), strong=self.consistency.strong
        )
        settings = self.consistency.methods[student]
        own = {name: getattr(settings, name) for name in vars(recipe) if hasattr(settings, name)}
        return dataclasses.replace(recipe, **{name: value_for(value, kind) for name, value in own.items()})

    def student_section(self, student: str, kind: LabelKind) -> TrainingParams | StudentRecipe:
        """How long and how fast a semi-supervised method trains: by the recipe, or by the paper's values."""
        if self.consistency.methods[student].by_recipe:
            return self.student_recipe(student, kind)
        return self.consistency.paper.of(self.dataset)

    @property
    def heatmap_section(self) -> MapSettings | None:
        """The section of `heatmap` that `dataset` names; none where no slides are mapped (Kather's has no slides)."""
        return self.heatmap.datasets.get(self.dataset) if all(self.mapping) else None

    @property
    def mapping(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Those of `pretraining_methods`, and those of `semisupervised_methods`, whose models map whole slides."""
        of = self.slide_level
        return (
            tuple(method for method in self.pretraining_methods if method in of.pretraining_methods),
            tuple(student for student in self.semisupervised_methods if student in of.semisupervised_methods),
        )

    @property
    def mapping_encoders(self) -> tuple[int, ...]:
        """Those of `pretraining_seeds` whose encoders look at whole slides."""
        return self.pretraining_seeds[: self.slide_level.num_encoders]

    @property
    def mapped_repeats(self) -> tuple[tuple[int, int], ...]:
        """Those of `repeats` whose encoders look at whole slides."""
        return tuple(itertools.product(self.mapping_encoders, self.training_seeds))

    def is_mapped_by(self, method: str, encoder: int, student: str) -> bool:
        """Whether the models of a run map the slides of the dataset."""
        methods, students = self.mapping
        is_asked = method in methods and student in students and encoder in self.mapping_encoders
        return self.heatmap_section is not None and is_asked

    def learns_from_slides(self, method: str, encoder: int | None = None) -> bool:
        """Whether an encoder of a method, or any, looks at whole slides, for what their labels alone teach."""
        has_slides = DATASETS[self.dataset].MapSettings is not None
        return (
            method in self.mapping[0] and has_slides and (encoder is None or encoder in self.mapping_encoders)
        )

    @property
    def positive_class(self) -> str:
        """The label for which slides are diagnosed."""
        section = self.heatmap_section
        return (section.positive_class if section else None) or "tumor"
