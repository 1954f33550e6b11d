"""Tables of labeled patches -> batches of pixels beside their labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.data import Sampler

from histo_monai.data.loaders.batches import Batches, EpochBatches
from histo_monai.data.loaders.loaders import patch_loader
from histo_monai.data.loaders.pixels import LabeledPatches
from histo_monai.data.loaders.resident import PatchLoader, repeated_batches
from histo_monai.data.tables.tasks import task_targets


@dataclass(frozen=True)
class LabeledLoader:
    """Batches of patches with their labels.

    Attributes:
        loader: gives pixels (n, 1, 3, P, P) uint8 and rows (n,) int64 of a table.
        targets: by row: class numbers int64, or scores float32. Shape (rows of the table,).
    """

    loader: PatchLoader
    targets: torch.Tensor

    @property
    def batch_size(self) -> int:
        """Rows of a batch."""
        return self.loader.batch_sampler.batch_size  # type: ignore[union-attr]  # ours has it

    def some(self, num: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Up to `num` patches, (n, 1, 3, P, P) uint8, and their targets, (n,), of the rows that `spread` gives."""
        rows = spread(len(self.targets), num)
        dataset: Any = self.loader.dataset
        return dataset.__getitems__(rows.tolist())[0], self.targets[rows]


@dataclass(frozen=True)
class HiddenLabels:
    """Labels that are known of unlabeled patches, and given to no training: what its guesses are held against.

    Attributes:
        targets: by row of the unlabeled table, as those of a `LabeledLoader`; of any value where nothing is known.
        known: by row, bool: a label is known, and not given.
    """

    targets: torch.Tensor
    known: torch.Tensor

    @classmethod
    def of(cls, unlabeled: pd.DataFrame, labeled: pd.DataFrame, classes: list[str] | None) -> HiddenLabels:
        """Of the patches that are not among the labeled ones.

        Args:
            unlabeled: the table that is learned from without labels.
            labeled: the patches whose labels are given.
            classes: names by number; None for scores.
        """
        targets = task_targets(unlabeled, classes)
        is_there = ~targets.isnan() if classes is None else targets >= 0
        is_given = unlabeled["patch_id"].isin(labeled["patch_id"]).to_numpy()
        return cls(targets, is_there & torch.from_numpy(~is_given))


@dataclass(frozen=True)
class PatchReading:
    """How rows of a table of patches are read.

    Attributes:
        patch_px: side of the patches that a network sees.
        classes: names by number; None for scores.
        workers: reading processes.
        device: that batches are for.
    """

    patch_px: int
    classes: list[str] | None
    workers: int
    device: torch.device

    def in_order(
        self, rows: pd.DataFrame, batch_size: int, *, rank: int = 0, world_size: int = 1
    ) -> LabeledLoader:
        """Every row once, in the order of the table; of several processes each has a share of every batch."""
        batches = EpochBatches(len(rows), batch_size, seed=None, rank=rank, world_size=world_size)
        return self.loader(self.dataset(rows), rows, batches)

    def fields(self, rows: pd.DataFrame, times: int, batch_size: int) -> LabeledLoader:
        """Squares of slides in the order of the table, each in a field about its center that is so many times as wide.

        Pixels are (n, 1, 3, times P, times P), and not kept: they are asked for once.
        """
        wide = rows.assign(side_px=rows["side_px"] * times)
        dataset = LabeledPatches(wide, patch_px=self.patch_px * times, max_kept_bytes=0)
        return self.loader(dataset, rows, EpochBatches(len(rows), batch_size, seed=None))

    def dataset(self, rows: pd.DataFrame) -> LabeledPatches:
        """The pixels of rows."""
        return LabeledPatches(rows, patch_px=self.patch_px)

    def loader(
        self, dataset: LabeledPatches, rows: pd.DataFrame, batches: Sampler[list[int]]
    ) -> LabeledLoader:
        """The pixels of rows beside their labels, in the order that a sampler gives."""
        loader = patch_loader(dataset, batches, workers=self.workers, pin=self.device.type == "cuda")
        return LabeledLoader(loader, task_targets(rows, self.classes))

    def stream(self, dataset: LabeledPatches, rows: pd.DataFrame, batches: Batches) -> LabeledLoader:
        """As `loader`, of rows that come again and again, see `repeated_batches`."""
        loader = repeated_batches(dataset, batches, workers=self.workers, device=self.device)
        return LabeledLoader(loader, task_targets(rows, self.classes))


def spread(num_rows: int, num: int) -> np.ndarray:
    """Up to `num` row numbers at equal steps: tables are sorted, and steps through one show all classes and slides."""
    return np.linspace(0, num_rows - 1, min(num, num_rows)).round().astype(np.int64)
