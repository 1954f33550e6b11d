"""Kather's tissue classes as a dataset plug-in: patches without slides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from histo_monai.data.readers.protocol import Dataset, Reading
from histo_monai.data.readers.settings import LabelSettings

if TYPE_CHECKING:
    from histo_monai.data.tables.patches import LabeledDataset


@dataclass(frozen=True)
class KatherLabels(LabelSettings):
    """Kather labels: one of the two published training folders."""

    folder: Literal["NCT-CRC-HE-100K", "NCT-CRC-HE-100K-NONORM"]


class Kather(Dataset):
    """The Kather plug-in; without slides it has no corpus and no maps."""

    LabelSettings: ClassVar = KatherLabels
    phantom: ClassVar = "histo_monai.data.simulated.datasets.kather:SIMULATED"

    def labeled_patches(self, reading: Reading) -> LabeledDataset:
        """Patches of the training folder and of the test folder."""
        from histo_monai.data.readers.kather import reader

        return reader.labeled_patches(reading.root, folder=reading.labels.folder)


KATHER = Kather()
