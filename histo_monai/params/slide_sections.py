"""The sections of params.yaml that tell how whole slides are mapped and diagnosed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from histo_monai.settings.rules import (
    CountOrZero,
    MicronsPerPixel,
    Positive,
    PositiveNumbers,
    Range,
    Seed,
)


@dataclass(frozen=True)
class CrossfitParams:
    """Out-of-fold models: into how many parts the training slides are split."""

    num_folds: Annotated[int, Range(2)]


@dataclass(frozen=True)
class DetectionParams:
    """Detections are maxima of the map, smoothed by a Gaussian of `smoothing_um`: least value, least distance, µm."""

    threshold: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    radius_um: Positive
    smoothing_um: Annotated[float, Range(0.0)]


@dataclass(frozen=True)
class MapParams:
    """Maps of a dataset's slides: side of a cell, a whole number of pixels of the patches."""

    stride_um: Positive


@dataclass(frozen=True)
class OwnMapParams(MapParams):
    """As `MapParams`; `positive` is the class whose probability is mapped (scores are mapped themselves)."""

    positive: str


@dataclass(frozen=True)
class HeatmapParams:
    """Maps of slides: least part of a cell that is tissue, least value of a region, pictures; a section per dataset."""

    min_tissue_fraction: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    overlay_mpp: MicronsPerPixel
    region_threshold: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    detection: DetectionParams
    breastpathq: MapParams
    camelyon16: MapParams
    own: OwnMapParams


@dataclass(frozen=True)
class AggregateParams:
    """From a slide's map to its diagnosis: the SVM, its search inside the training slides, and the control."""

    seed: Seed
    kernel: Literal["linear", "rbf"]
    C: PositiveNumbers
    gamma: PositiveNumbers
    num_folds: Annotated[int, Range(2)]
    num_permutations: CountOrZero
