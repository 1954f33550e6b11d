"""Batches whose tiles are decoded by the GPU that trains on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from histo_monai.data.decoding.ahead import prepared_ahead
from histo_monai.data.decoding.choice import asked_decoder, tile_store
from histo_monai.data.decoding.tile_store import TileStore
from histo_monai.data.loaders.loaders import ConcentricPatches, Patches
from histo_monai.data.loaders.sent import RowsOfBatches

ENOUGH_WORKERS = 8
"""So many reading processes decode patches from anywhere in a slide faster than a GPU's JPEG engines."""


def store_for(dataset: ConcentricPatches, workers: int, device: torch.device) -> TileStore | None:
    """Where the device decodes the slides of a training: its store.

    Raises:
        InputError: `HISTO_MONAI_DECODER` asks for what the device cannot do.
    """
    store = tile_store(device)
    if store is None or (workers >= ENOUGH_WORKERS and asked_decoder() != "gpu"):
        return None
    return store if dataset.suits(store) else None


class DecodedPatches:
    """Loader whose pixels are on a device and rows on the CPU; other behavior as `patch_loader`."""

    def __init__(self, dataset: ConcentricPatches, batches: RowsOfBatches, store: TileStore) -> None:
        self.dataset = dataset
        self.batch_sampler = batches
        self._store = store

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Patches]:
        """Pixels on the device and rows on the CPU, for an epoch's batches."""
        # One thread: a pool of open slides belongs to one.
        return prepared_ahead(self.batch_sampler, self._batch, self._store.stream)

    def _batch(self, rows: Sequence[int]) -> Patches:
        numbers = torch.tensor(rows, dtype=torch.int64)
        pixels = self.dataset.decoded(numbers.numpy(), self._store)
        return pixels, numbers.pin_memory() if self._store.device.type == "cuda" else numbers
