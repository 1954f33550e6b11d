"""BreastPathQ as a dataset plug-in: scored patches, and slides to pretrain on."""

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
    """Column of one pathologist's scores, in a csv of the test folder."""

    file: str
    column: str


@dataclass(frozen=True)
class BreastPathQLabels(LabelSettings):
    """BreastPathQ labels: the columns of the test tables, which differ between releases.

    `unlabeled` patches come from tissue of the corpus, if that is BreastPathQ's; with separate validation, only from
    its training slides.
    """

    slide_column: str
    region_column: str
    rater_a: RaterColumn
    rater_b: RaterColumn
    unlabeled: CountOrZero


class BreastPathQ(Dataset):
    """The BreastPathQ plug-in; the corpus slides are mapped and have no label."""

    CorpusSettings: ClassVar = CorpusSettings
    LabelSettings: ClassVar = BreastPathQLabels
    MapSettings: ClassVar = TumorMaps
    phantom: ClassVar = "histo_monai.data.simulated.datasets.breastpathq:SIMULATED"

    def pretraining_slides(self, root: Path, settings: Any) -> pd.DataFrame:
        """Slides for pretraining, without those of test patches."""
        from histo_monai.data.readers.breastpathq import reader

        return reader.pretraining_slides(root)

    def labeled_patches(self, reading: Reading) -> LabeledDataset:
        """All scored patches with the mean of two raters in the test."""
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
        """Number of unlabeled patches."""
        return labels.unlabeled


BREASTPATHQ = BreastPathQ()
