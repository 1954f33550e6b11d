"""Reading processes write batches into page-locked memory, from which the GPU copies.

By default a batch moves three times: into shared memory, by a thread of this process into page-locked memory, and to
the device. At 37 MB a batch (64 triples of 256 px), the thread holds the interpreter for ten milliseconds or more.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, Sampler

from histo_monai.data.loaders.loaders import AHEAD, PatchDataset, Patches, patch_loader
from histo_monai.data.loaders.pixel_cache import shared_zeros

_LOG = logging.getLogger(__name__)

SPARE = 4
"""Extra slots: this many steps can be queued before the device has copied the first one's batch."""


class RowsOfBatches(Protocol):
    """Rows of each batch."""

    @property
    def most_rows(self) -> int:
        """Most rows of a batch."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[list[int]]: ...


class SentPatches:
    """Loader whose pixels are on a device and rows on the CPU; other behavior as `patch_loader`.

    Args:
        workers: Number of reading processes, at least one.
    """

    def __init__(
        self,
        dataset: PatchDataset,
        batches: RowsOfBatches,
        *,
        workers: int,
        device: torch.device,
    ) -> None:
        self.dataset = dataset
        self.batch_sampler = batches
        self._device = device
        self._num_asked = AHEAD * workers
        self._slots = _Slots(
            self._num_asked + SPARE, batches.most_rows * dataset.num_bytes // len(dataset), device
        )
        writing = _Writing(dataset, self._slots.pixels)
        numbered = _Numbered(batches, len(self._slots.pixels))
        self._loader = patch_loader(writing, numbered, workers=workers, pin=False)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Patches]:
        """Pixels on the device and rows on the CPU, for an epoch's batches."""
        for slot in range(len(self._slots.pixels)):  # The previous epoch may have stopped early.
            self._slots.wait(slot)
        written = iter(self._loader)
        for number in range(len(self)):
            # Fetching this batch requests another one, which overwrites a slot: that slot must be copied first.
            self._slots.wait(number + self._num_asked)
            batch: Any = next(written)
            rows = torch.from_numpy(batch.rows)
            yield self._slots.copy(batch), rows.pin_memory() if self._device.type == "cuda" else rows


class _Written(NamedTuple):
    """A written batch: slot, shape and rows."""

    slot: int
    shape: tuple[int, ...]
    rows: NDArray[np.int64]


class _Numbered(Sampler[Any]):
    """Rows of each batch, with the slot to write to."""

    def __init__(self, batches: RowsOfBatches, num_slots: int) -> None:
        self._batches = batches
        self._num_slots = num_slots

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        for number, rows in enumerate(self._batches):
            yield number % self._num_slots, rows


class _Writing(Dataset[Any]):
    """Writes the pixels of a batch into its slot."""

    def __init__(self, dataset: PatchDataset, slots: NDArray[np.uint8]) -> None:
        self._dataset = dataset
        self._slots = slots

    def __getitems__(self, asked: tuple[int, list[int]]) -> _Written:
        slot, rows = asked
        pixels, read = self._dataset.__getitems__(rows)
        self._slots[slot, : pixels.numel()] = pixels.reshape(-1).numpy()
        return _Written(slot, tuple(pixels.shape), read.numpy())


class _Slots:
    """Slots for several batches, in memory that later forked processes use together.

    Args:
        device: Device that copies from the slots; for a GPU they are page-locked, so copies are asynchronous.

    Attributes:
        pixels: Shape (num, num_bytes), uint8.
    """

    def __init__(self, num: int, num_bytes: int, device: torch.device) -> None:
        self.pixels = shared_zeros(num * num_bytes).reshape(num, num_bytes)
        self._device = device
        self._copied = [torch.cuda.Event() for _ in range(num)] if device.type == "cuda" else []
        if self._copied:
            _lock_pages(self.pixels, self._copied, self)

    def copy(self, batch: _Written) -> torch.Tensor:
        """The pixels of a batch on the device, copied asynchronously."""
        there = torch.empty(batch.shape, dtype=torch.uint8, device=self._device)
        there.view(-1).copy_(torch.from_numpy(self.pixels[batch.slot, : there.numel()]), non_blocking=True)
        if self._copied:
            self._copied[batch.slot].record()
        return there

    def wait(self, number: int) -> None:
        """Wait until the slot of batch `number` may be overwritten."""
        if self._copied:
            self._copied[number % len(self._copied)].synchronize()


def _lock_pages(pixels: NDArray[np.uint8], copied: list[torch.cuda.Event], owner: object) -> None:
    """Page-lock memory for the lifetime of its owner."""
    runtime: Any = torch.cuda.cudart()
    error = int(runtime.cudaHostRegister(pixels.ctypes.data, pixels.nbytes, 0))
    if error:
        _LOG.warning(
            "loader: page-locked memory refused=%d MiB error=%d; copies are synchronous",
            pixels.nbytes >> 20,
            error,
        )
        return
    process = os.getpid()

    def unlock() -> None:
        if os.getpid() == process:  # Not in a forked process.
            for event in copied:
                event.synchronize()
            runtime.cudaHostUnregister(pixels.ctypes.data)

    weakref.finalize(owner, unlock)
