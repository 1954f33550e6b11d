"""Camelyon16 as a dataset plug-in: slides with outlined metastases, some reserved for pretraining."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from histo_monai.data.readers.protocol import Dataset, Reading
from histo_monai.data.readers.settings import CorpusSettings, LabelSettings, TumorMaps
from histo_monai.utils.settings.rules import CountOrZero, MicronsPerPixel, Range

if TYPE_CHECKING:
    import pandas as pd

    from histo_monai.data.tables.patches import LabeledDataset


@dataclass(frozen=True)
class Camelyon16Corpus(CorpusSettings):
    """Camelyon16 corpus: the first `num_normal` and `num_tumor` training slides, by number."""

    num_normal: CountOrZero
    num_tumor: CountOrZero


@dataclass(frozen=True)
class PatchCounts:
    """Number of patches inside and outside the outlines."""

    num_tumor: CountOrZero
    num_normal: CountOrZero


@dataclass(frozen=True)
class Camelyon16Labels(LabelSettings):
    """Camelyon16 labels; a tumor patch has at least `min_tumor_fraction` of its field inside outlines.

    `separate_validation` counts the validation patches if `validation` is separate. `unlabeled` patches come from
    tissue anywhere on slides without a validation or test patch.
    """

    mpp: MicronsPerPixel
    min_tumor_fraction: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    train: PatchCounts
    separate_validation: PatchCounts
    test: PatchCounts
    unlabeled: CountOrZero


class Camelyon16(Dataset):
    """The Camelyon16 plug-in. The slides of `corpora.camelyon16` are reserved for pretraining with any corpus."""

    CorpusSettings: ClassVar = Camelyon16Corpus
    LabelSettings: ClassVar = Camelyon16Labels
    MapSettings: ClassVar = TumorMaps
    phantom: ClassVar = "histo_monai.data.simulated.datasets.camelyon16:SIMULATED"

    def pretraining_slides(self, root: Path, settings: Any) -> pd.DataFrame:
        """The first training slides by number."""
        from histo_monai.data.readers.camelyon16 import reader

        return reader.pretraining_slides(root, settings.num_normal, settings.num_tumor)

    def labeled_patches(self, reading: Reading) -> LabeledDataset:
        """Patches inside and outside the outlines, sampled per split."""
        from histo_monai.data.readers.camelyon16 import reader

        labels: Camelyon16Labels = reading.labels
        counts = {"train": labels.train, "test": labels.test}
        if labels.validation == "separate":
            counts = {"train": labels.train, "validation": labels.separate_validation, "test": labels.test}
        index = dataclasses.asdict(reading.index) | {"validation_fraction": _validation_fraction(reading)}
        return reader.labeled_patches(
            reading.root,
            num_reserved_normal=reading.corpus.num_normal,
            num_reserved_tumor=reading.corpus.num_tumor,
            patch_px=reading.patch_px,
            mpp=labels.mpp,
            min_tumor_fraction=labels.min_tumor_fraction,
            wanted={split: {"tumor": n.num_tumor, "normal": n.num_normal} for split, n in counts.items()},
            **{
                name: value for name, value in index.items() if name != "artefacts"
            },  # Never leaves out a label.
            processes=reading.processes,
            **_release(reading),
        )

    def num_unlabeled(self, labels: Camelyon16Labels) -> int:
        """Number of unlabeled patches."""
        return labels.unlabeled

    def whole_slides(self, reading: Reading) -> tuple[pd.DataFrame, list[str]]:
        """Whole slides with labels and splits, and data warnings."""
        from histo_monai.data.readers.camelyon16 import reader

        return reader.whole_slides(
            reading.root,
            num_reserved_normal=reading.corpus.num_normal,
            num_reserved_tumor=reading.corpus.num_tumor,
            validation_fraction=_validation_fraction(reading),
            seed=reading.index.seed,
            skip_bad_slides=reading.index.skip_bad_slides,
            **_release(reading),
        )


def _release(reading: Reading) -> dict[str, Any]:
    """Outlines of simulated slides are complete, whatever their ids."""
    return {"partly_outlined": ()} if reading.is_simulated else {}


def _validation_fraction(reading: Reading) -> float | None:
    """Fraction of labeled slides for validation; None: cross-validation inside the labels."""
    return reading.index.validation_fraction if reading.labels.validation == "separate" else None


CAMELYON16 = Camelyon16()
