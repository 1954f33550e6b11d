"""Sections of params.yaml for maps and diagnoses of whole slides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from histo_monai.data.readers.registry import DATASETS
from histo_monai.data.readers.settings import MapSettings
from histo_monai.models.settings import COLOR, FIELD, FIELD_TIMES, Depth, in_order
from histo_monai.utils.settings.rules import (
    CountOrZero,
    MicronsPerPixel,
    OneOrSeveral,
    Positive,
    PositiveNumbers,
    Range,
    SectionsOf,
    Seed,
    Unique,
)

View = Literal["flip", "rotate_90", "rotate_180", "rotate_270", "strong_stain", "weak_stain"]
"""Names of `transforms.fixed_views`, which params do not import."""


@dataclass(frozen=True)
class DetectionParams:
    """Local maxima of the map smoothed by a Gaussian: minimum value, minimum distance (µm), standard deviation (µm)."""

    threshold: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    radius_um: Positive
    smoothing_um: Annotated[float, Range(0.0)]


@dataclass(frozen=True)
class HeatmapParams:
    """Maps of slides: minimum tissue fraction of a cell, overlays, outlines, detections; a section per dataset.

    `seen`: training slides are also mapped by the models trained on them.
    """

    seen: bool
    min_tissue_fraction: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    overlay_mpp: MicronsPerPixel
    region_threshold: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    detection: DetectionParams
    datasets: Annotated[Mapping[str, MapSettings], SectionsOf(DATASETS, "MapSettings", beside=True)]


@dataclass(frozen=True)
class FeaturesParams:
    """Features of patches by frozen encoders.

    Attributes:
        depth: numbers of encoder stages, one or several; None: the whole encoder; 0: color, beside another.
        field: side of the field around a patch, in sides of the patch, whose features heads use beside; 1: none.
        mpp: of the patches of whole slides, µm/px; None: finest of the pretraining.
        stride_um: distance between patches of whole slides; None: side of a patch.
        views: of each patch, beside the unaugmented one.
        precision: of the stored features.
        batchnorm_patches: unaugmented patches, none of them for testing, for batch-norm statistics; 0: statistics of
            the pretraining; None: `models.batchnorm.patches_for_statistics`.
    """

    depth: Annotated[tuple[CountOrZero | None, ...], OneOrSeveral()]
    field: Annotated[int, Range(1, FIELD_TIMES)]
    mpp: MicronsPerPixel | None
    stride_um: Positive | None
    views: Annotated[tuple[View, ...], Unique(at_least=0)]
    precision: Literal["float16", "float32"]
    batchnorm_patches: CountOrZero | None

    @property
    def depths(self) -> tuple[Depth, ...]:
        """Depths, rising: the field, color, numbers of stages, the whole encoder."""
        field = [FIELD] if self.field > 1 else []
        return in_order([*field, *(COLOR if depth == 0 else depth for depth in self.depth)])


@dataclass(frozen=True)
class AggregateParams:
    """Diagnosis of slides: SVM, its hyperparameter search on training slides, and the permutation control."""

    seed: Seed
    kernel: Literal["linear", "rbf"]
    C: PositiveNumbers
    gamma: PositiveNumbers
    num_folds: Annotated[int, Range(2)]
    num_permutations: CountOrZero
