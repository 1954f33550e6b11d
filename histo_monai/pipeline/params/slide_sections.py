"""The sections of params.yaml that tell how whole slides are mapped and diagnosed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from histo_monai.data.readers.registry import DATASETS
from histo_monai.data.readers.settings import MapSettings
from histo_monai.utils.settings.rules import (
    Count,
    CountOrZero,
    MicronsPerPixel,
    Positive,
    PositiveNumbers,
    Range,
    SectionsOf,
    Seed,
    Unique,
)

View = Literal["flip", "rotate_90", "rotate_180", "rotate_270", "strong_stain", "weak_stain"]
"""Names of `transforms.plain_views`, which params do not import."""


@dataclass(frozen=True)
class DetectionParams:
    """Detections are maxima of the map, smoothed by a Gaussian of `smoothing_um`: least value, least distance, µm."""

    threshold: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    radius_um: Positive
    smoothing_um: Annotated[float, Range(0.0)]


@dataclass(frozen=True)
class HeatmapParams:
    """Maps of slides: least part of a cell that is tissue, least value of a region, pictures; a section per dataset.

    `seen`: training slides are mapped by the models that learned from them too.
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
        depth: stages of the encoder that are used; None: the whole encoder.
        mpp: of the patches of whole slides, µm/px; None: the finest that the encoder was pretrained at.
        stride_um: side of a cell of whole slides, µm; None: the side of a patch.
        side_px: to which patches are enlarged for the encoder; None: `patch_px`.
        views: of each patch beside the unaugmented one.
        precision: in which features are stored.
        batchnorm_patches: unaugmented, not tested on, that batch-norm statistics are taken from; 0: those of the
            pretraining stay.
    """

    depth: Count | None
    mpp: MicronsPerPixel | None
    stride_um: Positive | None
    side_px: Annotated[int, Range(32, 2048)] | None
    views: Annotated[tuple[View, ...], Unique(at_least=0)]
    precision: Literal["float16", "float32"]
    batchnorm_patches: CountOrZero


@dataclass(frozen=True)
class AggregateParams:
    """From a slide's map to its diagnosis: the SVM, its search inside the training slides, and the control."""

    seed: Seed
    kernel: Literal["linear", "rbf"]
    C: PositiveNumbers
    gamma: PositiveNumbers
    num_folds: Annotated[int, Range(2)]
    num_permutations: CountOrZero
