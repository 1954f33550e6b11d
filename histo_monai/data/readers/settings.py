"""Settings that several datasets share, or that all of their readers follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from histo_monai.utils.settings.rules import Count, CountOrZero, Mpps, Positive, Range, Seed, SlideMpp


@dataclass(frozen=True)
class CorpusSettings:
    """A corpus to pretrain on: resolutions of a triple, and how many triples to draw from its slides."""

    mpps: Mpps
    num_train: Count
    num_validation: Count


@dataclass(frozen=True)
class LabelSettings:
    """The labeled patches of a dataset; each dataset adds its own settings.

    Attributes:
        validation: "labeled": all patches outside the test are for training, and cross-validation inside the labels
            chooses. "separate": further labeled patches choose, which the budget of labels does not count.
    """

    validation: Literal["labeled", "separate"]


class MapSettings(Protocol):
    """How the slides of a dataset are mapped."""

    @property
    def stride_um(self) -> float | None:
        """Side of a cell, a whole number of pixels of the patches; None for that of a patch."""

    @property
    def positive_class(self) -> str | None:
        """The class whose probability is mapped, where there are two, and for which slides are diagnosed.

        None: tumor, or all classes where that is not one of two. Scores are mapped themselves.
        """


@dataclass(frozen=True)
class TumorMaps:
    """Maps of tumor; see `MapSettings`."""

    stride_um: Positive

    @property
    def positive_class(self) -> str:
        """See `MapSettings`."""
        return "tumor"


@dataclass(frozen=True)
class IndexSettings:
    """Slides -> tables: the split, and where on the tissue centers may lie."""

    seed: Seed
    validation_fraction: Annotated[float, Range(0.0, 0.9, exclusive_low=True)]
    skip_bad_slides: bool
    tissue_mpp: Annotated[float, Range(1.0, 64.0)]
    min_tissue_fraction: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]


@dataclass(frozen=True)
class PhantomSettings:
    """The simulated cohort: how many slides and patches, how large, from which seed."""

    seed: Seed
    num_slides: Count
    num_test_slides: CountOrZero
    num_patches: Count
    slide_side_px: Annotated[int, Range(256)]
    slide_mpp: SlideMpp
