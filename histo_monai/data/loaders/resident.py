"""Patches that stay on a GPU: each is read and sent once, by whoever asks first, and batches are put together there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Sampler

from histo_monai.data.loaders.batches import Batches
from histo_monai.data.loaders.loaders import PatchDataset, Patches, patch_loader
from histo_monai.data.loaders.sent import SentPatches
from histo_monai.utils.transfer import sent

SHARE = 0.25
"""Of a GPU's free memory that one table may take."""


def repeated_batches(
    dataset: PatchDataset, batches: Batches, *, workers: int, device: torch.device
) -> PatchLoader:
    """Batches of a training, in which rows come again and again: a GPU keeps the table where it has room for it.

    The same pixels either way.

    Args:
        batches: which rows, in which order.
        workers: reading processes; 0 reads in this one.
        device: that trains.
    """
    if device.type == "cuda" and dataset.num_bytes <= SHARE * torch.cuda.mem_get_info(device)[0]:
        return ResidentPatches(dataset, batches, workers=workers, device=device)
    return read_batches(dataset, batches, workers=workers, device=device)


def read_batches(
    dataset: PatchDataset, batches: Batches | _Missing, *, workers: int, device: torch.device
) -> DataLoader[Patches] | SentPatches:
    """Batches that are read each time, and on their way to a device; see `repeated_batches`."""
    if device.type == "cuda" and workers:
        return SentPatches(dataset, batches, workers=workers, device=device)
    return patch_loader(dataset, batches, workers=workers, pin=device.type == "cuda")


class ResidentPatches:
    """As a loader of `patch_loader`, but for where its batches are: on a device, which keeps every row it was sent.

    Args:
        device: that keeps them.
    """

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
        """Batches of an epoch: pixels and rows, both on the device."""
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
    """Of each batch the rows that are neither there nor in a batch before it, each once.

    Args:
        batches: which rows, in which order.
        is_there: by row of the table; changed by whoever puts rows there.
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


PatchLoader = DataLoader[Patches] | SentPatches | ResidentPatches
"""Batches, epoch after epoch."""
