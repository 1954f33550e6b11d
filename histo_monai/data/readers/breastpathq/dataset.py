"""BreastPathQ as a part: scored patches, and slides to pretrain on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from histo_monai.data.readers.protocol import Dataset, Reading
from histo_monai.data.readers.settings import CorpusSettings, LabelSettings, TumorMaps
from histo_monai.utils.settings.rules import CountOrZero

if TYPE_CHECKING:
    import pandas as pd

    from histo_monai.data.tables.patches import LabeledDataset


@dataclass(frozen=True)
class RaterColumn:
    """Where the scores of one pathologist stand: a csv in the test folder, and its column."""

    file: str
    column: str


@dataclass(frozen=True)
class BreastPathQLabels(LabelSettings):
    """BreastPathQ: the columns of its test labels, which differ between releases.

    `unlabeled` patches more come from the tissue of the corpus's slides, where it is BreastPathQ's; only from its
    training slides where `validation` is separate.
    """

    slide_column: str
    region_column: str
    rater_a: RaterColumn
    rater_b: RaterColumn
    unlabeled: CountOrZero


class BreastPathQ(Dataset):
    """See `reader`; the slides of the corpus are mapped, and bear no label."""

    CorpusSettings: ClassVar = CorpusSettings
    LabelSettings: ClassVar = BreastPathQLabels
    MapSettings: ClassVar = TumorMaps
    phantom: ClassVar = "histo_monai.data.simulated.cohorts.breastpathq:COHORT"

    def pretraining_slides(self, root: Path, settings: Any) -> pd.DataFrame:
        """See `reader.pretraining_slides`."""
        from histo_monai.data.readers.breastpathq import reader

        return reader.pretraining_slides(root)

    def labeled_patches(self, reading: Reading) -> LabeledDataset:
        """See `reader.labeled_patches`."""
        from histo_monai.data.readers.breastpathq import reader

        labels: BreastPathQLabels = reading.labels
        return reader.labeled_patches(
            reading.root,
            slide_column=labels.slide_column,
            region_column=labels.region_column,
            rater_a=labels.rater_a,
            rater_b=labels.rater_b,
        )

    def num_unlabeled(self, labels: BreastPathQLabels) -> int:
        """See `BreastPathQLabels`."""
        return labels.unlabeled


BREASTPATHQ = BreastPathQ()
