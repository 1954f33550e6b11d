"""Dataset plug-in: settings, slides for pretraining, labeled patches, whole slides and simulation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from histo_monai.data.readers.settings import CorpusSettings, IndexSettings, LabelSettings, MapSettings

if TYPE_CHECKING:  # reading params imports no reader
    import pandas as pd

    from histo_monai.data.simulated import SimulatedDataset
    from histo_monai.data.tables.patches import LabeledDataset
    from histo_monai.slides.annotations import Region


@dataclass(frozen=True)
class Reading:
    """Inputs of a reader.

    Attributes:
        root: Folder of the dataset.
        labels: The dataset's section of `labels`, its `LabelSettings`.
        corpus: The dataset's section of `corpora`; None for a dataset without a corpus.
        index: Split, seed, tissue, and whether to skip bad slides.
        patch_px: Side of a patch sampled from a slide.
        processes: Slides opened at the same time; the result does not depend on it.
        is_simulated: Whether the slides are simulated.
    """

    root: Path
    labels: Any
    corpus: Any
    index: IndexSettings
    patch_px: int
    processes: int
    is_simulated: bool


class Dataset(Protocol):
    """Base class of a dataset; the defaults describe a dataset of labeled patches alone.

    A dataset's module imports readers inside functions only, because params import the module to check their sections.

    Attributes:
        CorpusSettings: Frozen dataclass of the dataset's section of `corpora`; None without a corpus.
        LabelSettings: Frozen dataclass of the dataset's section of `labels`.
        MapSettings: Frozen dataclass of the dataset's section of `heatmap`; None without slides to map.
        phantom: Simulated dataset, as "module:name" or as an object; None without a simulation.
    """

    CorpusSettings: ClassVar[type[CorpusSettings] | None] = None
    LabelSettings: ClassVar[type[LabelSettings]]
    MapSettings: ClassVar[type[MapSettings] | None] = None
    phantom: ClassVar[SimulatedDataset | str | None] = None

    @abstractmethod
    def labeled_patches(self, reading: Reading) -> LabeledDataset:
        """Labeled patches; `split` is empty if the index assigns it.

        Raises:
            InputError: The files do not match the dataset's layout; names file and row.
        """

    def missing_labels(self, root: Path) -> Path | None:
        """Path of the missing table of labels, for a dataset that may have none; else None."""
        return None

    def missing_slides(self, root: Path) -> Path | None:
        """Path of the missing table of slides, for a dataset that may consist of images alone; else None."""
        return None

    def pretraining_slides(self, root: Path, settings: Any) -> pd.DataFrame:
        """Slides for pretraining, `data.tables.columns.CORPUS_COLUMNS`; `settings` is the section of `corpora`.

        Raises:
            InputError: The files do not match the dataset's layout; names file and row.
        """
        raise TypeError(f"{type(self).__name__} is no corpus")

    def whole_slides(self, reading: Reading) -> tuple[pd.DataFrame, list[str]] | None:
        """Slides to map and to diagnose, `data.tables.columns.WHOLE_SLIDE_COLUMNS`, and one-line data warnings.

        None for a dataset of patches: its corpus slides are mapped, and no slide is diagnosed.

        Raises:
            InputError: The files do not match the dataset's layout; names file and row.
        """
        return None

    def is_lesion(self, label: str, positive: str) -> bool:
        """Whether an outline of this class shows the diagnosed class; True for datasets that outline nothing else."""
        return True

    def lesions(self, regions: Iterable[Region], positive: str) -> list[Region]:
        """Outlines of the diagnosed class."""
        return [region for region in regions if self.is_lesion(region.label, positive)]

    def check_files(self, root: Path, processes: int) -> None:
        """Compare files with the digests in their manifest, if it has any.

        Raises:
            InputError: A file differs.
        """
        return

    def validation_within_patients(self, labels: Any) -> bool:
        """Whether separate validation may contain patients of the training patches; `labels`: label settings."""
        return False

    def num_unlabeled(self, labels: Any) -> int | None:
        """Number of unlabeled patches to sample from tissue; `labels`: label settings.

        None: as many as fit, up to `data.index.candidates.PLENTY`.
        """
        return 0

    def least_outline_um(self, labels: Any, patch_px: int) -> dict[str, float]:
        """Least sides, µm, of an outlined square that gives a patch, by the setting that requires them."""
        return {}
