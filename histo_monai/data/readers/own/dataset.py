"""The user's slides, patches and outlines as a dataset plug-in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from histo_monai.data.readers.protocol import Dataset, Reading
from histo_monai.data.readers.settings import CorpusSettings, LabelSettings
from histo_monai.utils.settings.rules import Count, CountOrZero, MicronsPerPixel, Positive, Range, Unique

if TYPE_CHECKING:
    import pandas as pd

    from histo_monai.data.tables.patches import LabeledDataset


@dataclass(frozen=True)
class RegionLabels:
    """Patches from outlined regions: µm/px, least fraction of a patch inside its region, and number per region.

    Classes in `ignored_classes` give no patch. If regions of two classes overlap, `overlaps` decides: refuse them, or
    cut the inner region out of the outer one.
    """

    mpp: MicronsPerPixel
    min_fraction: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    num_per_region: Count
    ignored_classes: Annotated[tuple[str, ...], Unique(at_least=0)]
    overlaps: Literal["refused", "innermost"]


@dataclass(frozen=True)
class OwnLabels(LabelSettings):
    """Labels of the user's data.

    `validation_within_patients` allows separate validation to have training patients, for data of one patient.
    `unlabeled` patches come from tissue of slides without a validation or test patch. None takes as many as fit, if the
    labeled patches state a resolution.
    """

    validation_within_patients: bool
    regions: RegionLabels
    unlabeled: CountOrZero | None


@dataclass(frozen=True)
class OwnMaps:
    """Heat-map settings: side of a cell, µm, and the class whose probability is mapped."""

    stride_um: Positive | None
    positive_class: str | None


class Own(Dataset):
    """The plug-in for own slides; slides without labels can be pretrained on and mapped."""

    CorpusSettings: ClassVar = CorpusSettings
    LabelSettings: ClassVar = OwnLabels
    MapSettings: ClassVar = OwnMaps

    def missing_slides(self, root: Path) -> Path | None:
        """Path of slides.csv, if the file is missing."""
        return None if os.path.lexists(root / "slides.csv") else root / "slides.csv"

    def pretraining_slides(self, root: Path, settings: Any) -> pd.DataFrame:
        """Slides of slides.csv outside the test split."""
        from histo_monai.data.readers.own import reader

        return reader.pretraining_slides(root)

    def labeled_patches(self, reading: Reading) -> LabeledDataset:
        """Patches of patches.csv and of outlined regions."""
        from histo_monai.data.readers.own import reader

        regions: RegionLabels = reading.labels.regions
        return reader.labeled_patches(
            reading.root,
            patch_px=reading.patch_px,
            region_mpp=regions.mpp,
            min_region_fraction=regions.min_fraction,
            num_per_region=regions.num_per_region,
            ignored_classes=regions.ignored_classes,
            innermost=regions.overlaps == "innermost",
            processes=reading.processes,
        )

    def missing_labels(self, root: Path) -> Path | None:
        """Path of patches.csv, if it and annotations are missing."""
        from histo_monai.data.readers.own import reader

        return None if reader.is_labeled(root) else root / "patches.csv"

    def num_unlabeled(self, labels: OwnLabels) -> int | None:
        """Number of unlabeled patches; None: as many as fit."""
        return labels.unlabeled

    def whole_slides(self, reading: Reading) -> tuple[pd.DataFrame, list[str]]:
        """All slides of slides.csv; empty without this file."""
        from histo_monai.data.readers.own import reader
        from histo_monai.data.tables.columns import whole_slide_table

        if self.missing_slides(reading.root) is not None:
            return whole_slide_table([]), []
        return reader.whole_slides(reading.root)

    def is_lesion(self, label: str, positive: str) -> bool:
        """Whether an outline has the positive class or no class."""
        return label.casefold() in ("", positive.casefold())

    def check_files(self, root: Path, processes: int) -> None:
        """Compare slides with the sha256 in slides.csv, if this file exists."""
        from histo_monai.data.readers.own import slides

        if (root / "slides.csv").exists():
            slides.check_sha256(root, processes)

    def validation_within_patients(self, labels: Any) -> bool:
        """Whether separate validation may contain patients of the training patches."""
        return bool(labels.validation_within_patients)

    def least_outline_um(self, labels: Any, patch_px: int) -> dict[str, float]:
        """Side of a region patch, µm."""
        return {"that labels.own.regions.mpp asks of a patch": patch_px * labels.regions.mpp}


OWN = Own()
