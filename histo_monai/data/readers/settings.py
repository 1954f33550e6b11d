"""Settings common to several datasets or readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from histo_monai.utils.settings.rules import Count, CountOrZero, Mpps, Positive, Range, Seed, SlideMpp, Unique


@dataclass(frozen=True)
class CorpusSettings:
    """Pretraining corpus: resolutions of a triple, and number of triples to sample from the slides."""

    mpps: Mpps
    num_train: Count
    num_validation: Count


@dataclass(frozen=True)
class LabelSettings:
    """Labels of a dataset; each dataset adds its own settings.

    Attributes:
        validation: "labeled": all patches outside the test are for training, and cross-validation on the labels selects
            models. "separate": additional labeled patches select models; the label budget excludes them.
    """

    validation: Literal["labeled", "separate"]


class MapSettings(Protocol):
    """Heat-map settings of a dataset."""

    @property
    def stride_um(self) -> float | None:
        """Side of a cell, µm, a whole number of patch pixels; None for the side of a patch."""

    @property
    def positive_class(self) -> str | None:
        """The mapped class of a two-class task, and the diagnosed class of slides.

        None: tumor, or all classes if tumor is not one of two classes. Scores are mapped directly.
        """


@dataclass(frozen=True)
class TumorMaps:
    """Heat-map settings with tumor as the positive class."""

    stride_um: Positive

    @property
    def positive_class(self) -> str:
        """The mapped and diagnosed class."""
        return "tumor"


@dataclass(frozen=True)
class IndexSettings:
    """Index settings: the split, the tissue that centers of patches need, and the rules for tissue that is not used."""

    seed: Seed
    validation_fraction: Annotated[float, Range(0.0, 0.9, exclusive_low=True)]
    skip_bad_slides: bool
    tissue_mpp: Annotated[float, Range(1.0, 64.0)]
    min_tissue_fraction: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    artefacts: Annotated[tuple[Literal["pen", "dark", "blur"], ...], Unique(at_least=0)]


@dataclass(frozen=True)
class PhantomSettings:
    """Simulated dataset: number and size of slides, number of patches, seed."""

    seed: Seed
    num_slides: Count
    num_test_slides: CountOrZero
    num_patches: Count
    slide_side_px: Annotated[int, Range(256)]
    slide_mpp: SlideMpp
