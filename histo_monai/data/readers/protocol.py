"""A dataset as a part: its settings, slides to pretrain on, labeled patches, whole slides and simulation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from histo_monai.data.readers.settings import CorpusSettings, IndexSettings, LabelSettings, MapSettings

if TYPE_CHECKING:  # reading params imports no reader
    import pandas as pd

    from histo_monai.data.simulated import Cohort
    from histo_monai.data.tables.patches import LabeledDataset
    from histo_monai.slides.annotations import Region


@dataclass(frozen=True)
class Reading:
    """What the index asks of a reader.

    Attributes:
        root: folder of the dataset.
        labels: its section of `labels`, the `LabelSettings` of the dataset.
        corpus: its section of `corpora`; None where it is no corpus.
        index: split, seed, tissue, and whether bad slides are left out.
        patch_px: side of a patch that is drawn from a slide.
        processes: slides opened at the same time; decides nothing.
    """

    root: Path
    labels: Any
    corpus: Any
    index: IndexSettings
    patch_px: int
    processes: int


class Dataset(Protocol):
    """One dataset. Subclass it; what a dataset does not have is left as it stands here.

    The module that holds the object imports readers inside functions only: params import it to check their sections.

    Attributes:
        CorpusSettings: frozen dataclass of its section of `corpora`; None where it is no corpus to pretrain on.
        LabelSettings: of its section of `labels`.
        MapSettings: of its section of `heatmap`; None where it has no slides to map.
        phantom: what simulates it, as "module:name" or itself; None where nothing does.
    """

    CorpusSettings: ClassVar[type[CorpusSettings] | None] = None
    LabelSettings: ClassVar[type[LabelSettings]]
    MapSettings: ClassVar[type[MapSettings] | None] = None
    phantom: ClassVar[Cohort | str | None] = None

    @abstractmethod
    def labeled_patches(self, reading: Reading) -> LabeledDataset:
        """The labeled patches, `split` empty where it is still to be drawn.

        Raises:
            InputError: the tree is not what its layout says; names file and row.
        """

    def missing_labels(self, root: Path) -> Path | None:
        """The table that would hold the labels, where a folder may have none and has none: it can be pretrained on."""
        return None

    def missing_slides(self, root: Path) -> Path | None:
        """The table that would name the slides, where a folder may have none and has none: of pictures alone."""
        return None

    def pretraining_slides(self, root: Path, settings: Any) -> pd.DataFrame:
        """The slides to pretrain on, `data.tables.columns.CORPUS_COLUMNS`; `settings` are its section of `corpora`.

        Raises:
            InputError: see `labeled_patches`.
        """
        raise TypeError(f"{type(self).__name__} is no corpus")

    def whole_slides(self, reading: Reading) -> tuple[pd.DataFrame, list[str]] | None:
        """The slides to map and to diagnose, and what a reader of the results must know, one line each.

        Returns:
            `data.tables.columns.WHOLE_SLIDE_COLUMNS`, and the lines. None where it has patches only: the slides of the
            corpus are mapped, where that is the same dataset, and none is diagnosed.

        Raises:
            InputError: see `labeled_patches`.
        """
        return None

    def is_lesion(self, label: str, positive: str) -> bool:
        """Whether an outline of this class is of what is diagnosed; all are, where only that is outlined."""
        return True

    def lesions(self, regions: Iterable[Region], positive: str) -> list[Region]:
        """Those of the outlines that are of what is diagnosed, see `is_lesion`."""
        return [region for region in regions if self.is_lesion(region.label, positive)]

    def check_files(self, root: Path, processes: int) -> None:
        """Compare files with what their manifest says of them, where it does.

        Raises:
            InputError: one is another.
        """
        return

    def validation_within_patients(self, labels: Any) -> bool:
        """Whether separate validation may have patients of the training patches; `labels`: its settings."""
        return False

    def num_unlabeled(self, labels: Any) -> int | None:
        """Patches to draw from the tissue of slides beside the labeled ones; `labels`: its settings.

        None: what there is room for, up to `data.index.candidates.PLENTY`.
        """
        return 0

    def least_outline_um(self, labels: Any, patch_px: int) -> dict[str, float]:
        """Sides in µm that a square, outlined by hand, must hold to give a patch, by what asks for it."""
        return {}
