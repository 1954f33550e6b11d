"""Reading processes write batches where a GPU copies them from: nothing moves pixels in between.

Else a batch takes three ways: a process that reads puts it into shared memory, which this process is told to open, a
thread of this process moves it to page-locked memory, and the device copies it. At 37 MB a batch (64 triples of 256 px)
the thread is busy for ten milliseconds and more, with the interpreter that is to ask the device for its work.
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

from histo_monai.data.loaders.kept import shared_zeros
from histo_monai.data.loaders.loaders import AHEAD, PatchDataset, Patches, patch_loader

_LOG = logging.getLogger(__name__)

SPARE = 4
"""Batches more that have a place: so many steps may be asked for before the device has copied the first one's."""


class RowsOfBatches(Protocol):
    """Which rows, in which order."""

    @property
    def most_rows(self) -> int:
        """Of a batch."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[list[int]]: ...


class SentPatches:
    """As a loader of `patch_loader`, but for where its pixels are: on a device. Rows stay on the CPU.

    Args:
        batches: which rows, in which order.
        workers: reading processes, at least one.
        device: that asks for the batches.
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
        """Batches of an epoch: pixels on the device, rows on the CPU."""
        for slot in range(len(self._slots.pixels)):  # an epoch before may have been left early
            self._slots.wait(slot)
        written = iter(self._loader)
        for number in range(len(self)):
            # With the batch that comes now one more is asked for, which is written over one that was copied.
            self._slots.wait(number + self._num_asked)
            batch: Any = next(written)
            rows = torch.from_numpy(batch.rows)
            yield self._slots.copy(batch), rows.pin_memory() if self._device.type == "cuda" else rows


class _Written(NamedTuple):
    """A batch: where its pixels are, of which shape, and its rows."""

    slot: int
    shape: tuple[int, ...]
    rows: NDArray[np.int64]


class _Numbered(Sampler[Any]):
    """The rows of each batch, and the slot that they are written to."""

    def __init__(self, batches: RowsOfBatches, num_slots: int) -> None:
        self._batches = batches
        self._num_slots = num_slots

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        for number, rows in enumerate(self._batches):
            yield number % self._num_slots, rows


class _Writing(Dataset[Any]):
    """Rows -> what a reading process has written, and where."""

    def __init__(self, dataset: PatchDataset, slots: NDArray[np.uint8]) -> None:
        self._dataset = dataset
        self._slots = slots

    def __getitems__(self, asked: tuple[int, list[int]]) -> _Written:
        slot, rows = asked
        pixels, read = self._dataset.__getitems__(rows)
        self._slots[slot, : pixels.numel()] = pixels.reshape(-1).numpy()
        return _Written(slot, tuple(pixels.shape), read.numpy())


class _Slots:
    """Memory that processes share which are forked later, a place for each of several batches.

    Args:
        device: that copies from them. Of a GPU they are page-locked, so that nobody waits for a copy.

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
        """The pixels of a batch on the device; nobody waits for them."""
        there = torch.empty(batch.shape, dtype=torch.uint8, device=self._device)
        there.view(-1).copy_(torch.from_numpy(self.pixels[batch.slot, : there.numel()]), non_blocking=True)
        if self._copied:
            self._copied[batch.slot].record()
        return there

    def wait(self, number: int) -> None:
        """Until the place of a batch of this number may be written to."""
        if self._copied:
            self._copied[number % len(self._copied)].synchronize()


def _lock_pages(pixels: NDArray[np.uint8], copied: list[torch.cuda.Event], owner: object) -> None:
    """Page-lock memory for as long as its owner lives."""
    runtime: Any = torch.cuda.cudart()
    error = int(runtime.cudaHostRegister(pixels.ctypes.data, pixels.nbytes, 0))
    if error:
        _LOG.warning(
            "CUDA does not lock %d MiB of memory (error %d): copies wait", pixels.nbytes >> 20, error
        )
        return
    process = os.getpid()

    def unlock() -> None:
        if os.getpid() == process:  # not in one that was forked from it
            for event in copied:
                event.synchronize()
            runtime.cudaHostUnregister(pixels.ctypes.data)

    weakref.finalize(owner, unlock)
