"""The sections of params.yaml as frozen dataclasses, without defaults: what a run used is what the file says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from histo_monai.networks.settings import EncoderSettings
from histo_monai.params.slide_sections import (
    AggregateParams,
    CrossfitParams,
    HeatmapParams,
    MapParams,
    OwnMapParams,
)
from histo_monai.pretext import PRETEXTS
from histo_monai.pretext.settings import PretextSettings
from histo_monai.semisupervised import METHODS
from histo_monai.settings.rules import (
    Corpus,
    Count,
    CountOrZero,
    Dataset,
    Fraction,
    MicronsPerPixel,
    Milestones,
    Mpps,
    NamedIn,
    Positive,
    Range,
    SectionsOf,
    Seed,
    Seeds,
    Unique,
)


@dataclass(frozen=True)
class SlidesCorpus:
    """A corpus to pretrain on: resolutions of a triple, and how many triples to draw from its slides."""

    mpps: Mpps
    num_train: Count
    num_validation: Count


@dataclass(frozen=True)
class Camelyon16Corpus(SlidesCorpus):
    """As `SlidesCorpus`; the first `num_normal` and `num_tumor` training slides, by number, are the corpus."""

    num_normal: CountOrZero
    num_tumor: CountOrZero


@dataclass(frozen=True)
class Corpora:
    """One section for each corpus; `corpus` at the top of the file names the one in use."""

    breastpathq: SlidesCorpus
    camelyon16: Camelyon16Corpus
    own: SlidesCorpus


@dataclass(frozen=True)
class RaterColumn:
    """Where the scores of one pathologist stand: a csv in the test folder, and its column."""

    file: str
    column: str


@dataclass(frozen=True)
class BreastPathQLabels:
    """BreastPathQ: the columns of its test labels, which differ between releases."""

    slide_column: str
    region_column: str
    rater_a: RaterColumn
    rater_b: RaterColumn


@dataclass(frozen=True)
class PatchCounts:
    """How many patches to draw inside and outside the outlines."""

    num_tumor: CountOrZero
    num_normal: CountOrZero


@dataclass(frozen=True)
class Camelyon16Labels:
    """Camelyon16: patches drawn from slides; a tumour patch has `min_tumor_fraction` of its field inside at least."""

    mpp: MicronsPerPixel
    min_tumor_fraction: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    train: PatchCounts
    validation: PatchCounts
    test: PatchCounts


@dataclass(frozen=True)
class KatherLabels:
    """Kather: which of the two published training folders."""

    folder: Literal["NCT-CRC-HE-100K", "NCT-CRC-HE-100K-NONORM"]


@dataclass(frozen=True)
class RegionLabels:
    """Patches from outlined regions: µm/px, least part of a patch inside its region, and how many of one region."""

    mpp: MicronsPerPixel
    min_fraction: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    num_per_region: Count


@dataclass(frozen=True)
class OwnLabels:
    """Your own: may validation be drawn from the training patients, where there is but one; patches from outlines."""

    validation_within_patients: bool
    regions: RegionLabels


@dataclass(frozen=True)
class Labels:
    """One section for each dataset; `dataset` at the top of the file names the one in use."""

    breastpathq: BreastPathQLabels
    camelyon16: Camelyon16Labels
    kather: KatherLabels
    own: OwnLabels


@dataclass(frozen=True)
class PhantomParams:
    """The simulated cohort: how many slides and patches, how large, from which seed."""

    seed: Seed
    num_slides: Count
    num_test_slides: CountOrZero
    num_patches: Count
    slide_side_px: Annotated[int, Range(256)]
    slide_mpp: MicronsPerPixel


@dataclass(frozen=True)
class IndexParams:
    """Slides -> tables: the split, and where on the tissue centers may lie."""

    seed: Seed
    validation_fraction: Annotated[float, Range(0.0, 0.9, exclusive_low=True)]
    skip_bad_slides: bool
    tissue_mpp: Annotated[float, Range(1.0, 64.0)]
    min_tissue_fraction: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]


@dataclass(frozen=True)
class AugmentationParams:
    """How likely each operation of the pretraining augmentation is (paper: section 1 of the method)."""

    prob: Fraction


@dataclass(frozen=True)
class PretrainParams:
    """Self-supervised pretraining: beside seed and augmentation a section for each method, at least those in use."""

    seed: Seed
    augmentation: AugmentationParams
    methods: Annotated[Mapping[str, PretextSettings], SectionsOf(PRETEXTS, beside=True)]


@dataclass(frozen=True)
class TrainingParams:
    """A training with labels. "sgd" has Nesterov momentum 0.9, "adam" betas 0.9 and 0.999; lr x 0.1 at `milestones`."""

    epochs: Count
    batch_size: Count
    optimizer: Literal["adam", "sgd"]
    lr: Positive
    weight_decay: Annotated[float, Range(0.0)]
    milestones: Milestones


@dataclass(frozen=True)
class FinetuneParams:
    """Supervised fine-tuning: one section for each dataset."""

    breastpathq: TrainingParams
    camelyon16: TrainingParams
    kather: TrainingParams
    own: TrainingParams


@dataclass(frozen=True)
class ConsistencyParams:
    """Semi-supervised training: settings of each method, and how long and fast, a section for each dataset.

    `batch_size` of a section counts labeled images; mu times as many unlabeled ones come with them.
    """

    methods: Annotated[Mapping[str, Any], SectionsOf(METHODS)]
    breastpathq: TrainingParams
    camelyon16: TrainingParams
    kather: TrainingParams
    own: TrainingParams


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
class Params:
    """One experiment."""

    source: Literal["phantom", "raw"]
    dataset: Dataset
    corpus: Corpus
    methods: Annotated[tuple[Annotated[str, NamedIn(PRETEXTS)], ...], Unique()]
    students: Annotated[tuple[Annotated[str, NamedIn(METHODS)], ...], Unique()]
    seeds: Seeds
    alpha: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    mu: Count
    n_aug: Annotated[int, Range(1, 10)]
    patch_px: Annotated[int, Range(32, 2048)]
    encoder: EncoderSettings
    whole_slides: bool
    corpora: Corpora
    labels: Labels
    phantom: PhantomParams
    index: IndexParams
    pretrain: PretrainParams
    finetune: FinetuneParams
    consistency: ConsistencyParams
    evaluate: EvaluateParams
    crossfit: CrossfitParams
    heatmap: HeatmapParams
    aggregate: AggregateParams
    compare: CompareParams

    @property
    def corpus_section(self) -> SlidesCorpus:
        """The section of `corpora` that `corpus` names."""
        return getattr(self.corpora, self.corpus)

    @property
    def labels_section(self) -> BreastPathQLabels | Camelyon16Labels | KatherLabels | OwnLabels:
        """The section of `labels` that `dataset` names."""
        return getattr(self.labels, self.dataset)

    @property
    def finetune_section(self) -> TrainingParams:
        """The section of `finetune` that `dataset` names."""
        return getattr(self.finetune, self.dataset)

    @property
    def consistency_section(self) -> TrainingParams:
        """The section of `consistency` that `dataset` names."""
        return getattr(self.consistency, self.dataset)

    @property
    def heatmap_section(self) -> MapParams | None:
        """The section of `heatmap` that `dataset` names; none where no slides are mapped (Kather's has no slides)."""
        return getattr(self.heatmap, self.dataset, None) if self.whole_slides else None

    @property
    def positive(self) -> str:
        """The class whose probability is mapped, and for which slides are diagnosed."""
        section = self.heatmap_section
        return section.positive if isinstance(section, OwnMapParams) else "tumor"
