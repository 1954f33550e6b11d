"""Patches that stay on a GPU: each is read and sent once, and batches are gathered there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Sampler

from histo_monai.data.loaders.batches import Batches
from histo_monai.data.loaders.decoded import DecodedPatches, store_for
from histo_monai.data.loaders.loaders import ConcentricPatches, PatchDataset, Patches, patch_loader
from histo_monai.data.loaders.sent import SentPatches
from histo_monai.utils.transfer import sent

MEMORY_FRACTION = 0.25
"""Fraction of a GPU's free memory that one table may use."""


def repeated_batches(
    dataset: PatchDataset, batches: Batches, *, workers: int, device: torch.device
) -> PatchLoader:
    """Training batches with repeated rows; a GPU stores the table if its memory suffices.

    Args:
        batches: Rows of each batch.
        workers: Number of reading processes; 0 reads in this process.
        device: Device of the training.
    """
    if device.type == "cuda" and dataset.num_bytes <= MEMORY_FRACTION * torch.cuda.mem_get_info(device)[0]:
        return ResidentPatches(dataset, batches, workers=workers, device=device)
    return read_batches(dataset, batches, workers=workers, device=device)


def read_batches(
    dataset: PatchDataset, batches: Batches | _Missing, *, workers: int, device: torch.device
) -> DataLoader[Patches] | SentPatches | DecodedPatches:
    """Batches that are read each time and sent to the device, or decoded there."""
    if isinstance(dataset, ConcentricPatches) and (store := store_for(dataset, workers, device)) is not None:
        return DecodedPatches(dataset, batches, store)
    if device.type == "cuda" and workers:
        return SentPatches(dataset, batches, workers=workers, device=device)
    return patch_loader(dataset, batches, workers=workers, pin=device.type == "cuda")


class ResidentPatches:
    """Loader whose device stores every row it was sent; other behavior as `patch_loader`."""

    def __init__(
        self, dataset: PatchDataset, batches: Batches, *, workers: int, device: torch.device
    ) -> None:
        self.dataset = dataset
        self.batch_sampler = batches
        self._missing = _Missing(batches, np.zeros(len(dataset), dtype=bool))
        self._loader = read_batches(dataset, self._missing, workers=workers, device=device)
        self._device = device
        self._pixels = torch.empty(0)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Patches]:
        """Pixels and rows of an epoch's batches, both on the device."""
        if self._missing.is_there.all():
            for rows in self.batch_sampler:
                yield self._gathered(rows)
            return
        for rows, (fresh, fresh_rows) in zip(self.batch_sampler, self._loader, strict=True):
            self._keep(fresh, fresh_rows)
            yield self._gathered(rows)

    def _keep(self, fresh: torch.Tensor, rows: torch.Tensor) -> None:
        if len(self._pixels) == 0:
            shape = (len(self._missing.is_there), *fresh.shape[1:])
            self._pixels = torch.empty(shape, dtype=fresh.dtype, device=self._device)
        self._pixels.index_copy_(
            0, rows.to(self._device, non_blocking=True), fresh.to(self._device, non_blocking=True)
        )
        self._missing.is_there[rows.numpy()] = True

    def _gathered(self, rows: Any) -> Patches:
        here = sent(torch.as_tensor(rows), self._device)
        return self._pixels.index_select(0, here), here


class _Missing(Sampler[list[int]]):
    """Rows of each batch that are neither stored nor in an earlier batch, each once.

    Args:
        batches: Rows of each batch.
        is_there: Whether each row of the table is stored; the owner updates it.
    """

    def __init__(self, batches: Batches, is_there: NDArray[np.bool_]) -> None:
        self.most_rows = batches.most_rows
        self._batches = batches
        self.is_there = is_there

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        asked = self.is_there.copy()
        for rows in self._batches:
            missing = np.unique(np.asarray(rows, dtype=np.int64))
            missing = missing[~asked[missing]]
            asked[missing] = True
            yield missing.tolist()


PatchLoader = DataLoader[Patches] | DecodedPatches | SentPatches | ResidentPatches
"""Batches, epoch after epoch."""
