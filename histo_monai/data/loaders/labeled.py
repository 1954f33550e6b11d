"""Labeled patches -> batches of pixels and labels."""

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

NUM_SHOWN = 24
"""Patches in a picture of predictions."""


@dataclass(frozen=True)
class LabeledLoader:
    """Batches of labeled patches.

    Attributes:
        loader: Pixels (n, 1, 3, P, P) uint8 and rows (n,) int64 of a table.
        targets: Class numbers int64, or scores float32, shape (rows of the table,).
    """

    loader: PatchLoader
    targets: torch.Tensor

    @property
    def batch_size(self) -> int:
        """Rows per batch."""
        return self.loader.batch_sampler.batch_size  # type: ignore[union-attr]  # ours has it

    def some(self, num: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Up to `num` evenly spaced patches (`spread`), (n, 1, 3, P, P) uint8, and their targets, (n,)."""
        rows = spread(len(self.targets), num)
        dataset: Any = self.loader.dataset
        return dataset.__getitems__(rows.tolist())[0], self.targets[rows]


@dataclass(frozen=True)
class HiddenLabels:
    """Known labels of unlabeled patches, hidden from training and compared with its pseudo labels.

    Attributes:
        targets: Targets of the unlabeled table's rows, as in a `LabeledLoader`; arbitrary if unknown.
        known: Bool by row: a label is known and hidden.
    """

    targets: torch.Tensor
    known: torch.Tensor

    @classmethod
    def of(cls, unlabeled: pd.DataFrame, labeled: pd.DataFrame, classes: list[str] | None) -> HiddenLabels:
        """Hidden labels of the unlabeled patches.

        Args:
            unlabeled: Table that training uses without labels.
            labeled: Patches whose labels training uses.
            classes: Names by number; None for scores.
        """
        targets = task_targets(unlabeled, classes)
        is_there = ~targets.isnan() if classes is None else targets >= 0
        is_given = unlabeled["patch_id"].isin(labeled["patch_id"]).to_numpy()
        return cls(targets, is_there & torch.from_numpy(~is_given))


@dataclass(frozen=True)
class PatchReading:
    """Settings for reading a table of patches.

    Attributes:
        patch_px: Side of the network's patches.
        classes: Names by number; None for scores.
        workers: Number of reading processes.
        device: Device of the batches.
    """

    patch_px: int
    classes: list[str] | None
    workers: int
    device: torch.device

    def in_order(
        self, rows: pd.DataFrame, batch_size: int, *, rank: int = 0, world_size: int = 1
    ) -> LabeledLoader:
        """Every row once, in the order of the table; several processes split every batch."""
        batches = EpochBatches(len(rows), batch_size, seed=None, rank=rank, world_size=world_size)
        return self.loader(self.dataset(rows), rows, batches)

    def fields(self, rows: pd.DataFrame, times: int, batch_size: int) -> LabeledLoader:
        """Slide squares in the order of the table, each in a field `times` as wide around its center.

        Pixels are (n, 1, 3, times P, times P), and not cached.
        """
        wide = rows.assign(side_px=rows["side_px"] * times)
        dataset = LabeledPatches(wide, patch_px=self.patch_px * times, max_cache_bytes=0)
        return self.loader(dataset, rows, EpochBatches(len(rows), batch_size, seed=None))

    def dataset(self, rows: pd.DataFrame) -> LabeledPatches:
        """Dataset of the rows' pixels."""
        return LabeledPatches(rows, patch_px=self.patch_px)

    def loader(
        self, dataset: LabeledPatches, rows: pd.DataFrame, batches: Sampler[list[int]]
    ) -> LabeledLoader:
        """Pixels and labels of rows, in the order of a sampler."""
        loader = patch_loader(dataset, batches, workers=self.workers, pin=self.device.type == "cuda")
        return LabeledLoader(loader, task_targets(rows, self.classes))

    def stream(self, dataset: LabeledPatches, rows: pd.DataFrame, batches: Batches) -> LabeledLoader:
        """Pixels and labels of repeated rows (`repeated_batches`)."""
        loader = repeated_batches(dataset, batches, workers=self.workers, device=self.device)
        return LabeledLoader(loader, task_targets(rows, self.classes))


def spread(num_rows: int, num: int) -> np.ndarray:
    """Up to `num` evenly spaced row numbers; in sorted tables they cover all classes and slides."""
    return np.linspace(0, num_rows - 1, min(num, num_rows)).round().astype(np.int64)
