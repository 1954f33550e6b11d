"""Batches that reading processes write where a device copies them from: those of a loader, and never overwritten."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Sequence

import pytest
import torch

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import AHEAD, PatchDataset, Patches, patch_loader
from histo_monai.data.loaders.sent import SPARE, SentPatches

NUM, BATCH, WORKERS = 101, 4, 2


class _Numbers(PatchDataset):
    """Row r is full of r; row `missing` cannot be read."""

    def __init__(self, missing: int = -1, side_px: int = 4) -> None:
        self.missing = missing
        self.side_px = side_px

    @property
    def num_bytes(self) -> int:
        return NUM * 3 * self.side_px**2

    def __len__(self) -> int:
        return NUM

    def __getitems__(self, rows: Sequence[int]) -> Patches:
        if self.missing in rows:
            raise OSError(f"row {self.missing} is missing")
        pixels = torch.as_tensor(rows, dtype=torch.uint8).view(-1, 1, 1, 1, 1)
        return pixels.repeat(1, 1, 3, self.side_px, self.side_px), torch.as_tensor(rows, dtype=torch.int64)


def _sent(dataset: PatchDataset, batches: EpochBatches, device: torch.device) -> SentPatches:
    return SentPatches(dataset, batches, workers=WORKERS, device=device)


@pytest.mark.parametrize("seed", [None, 3])
def test_batches_are_those_of_a_loader_and_stay_what_they_are(seed: int | None, device: torch.device) -> None:
    order, again = (EpochBatches(NUM, BATCH, seed=seed) for _ in range(2))
    plain, batches = patch_loader(_Numbers(), order, workers=0, pin=False), _sent(_Numbers(), again, device)
    assert len(batches) == len(plain) > AHEAD * WORKERS + SPARE
    for epoch in (1, 2, 3):
        order.set_epoch(epoch)
        again.set_epoch(epoch)
        got = list(batches)  # all held while later ones are written
        for (pixels, rows), (right, right_rows) in zip(got, plain, strict=True):
            assert pixels.device == device
            assert torch.equal(pixels.cpu(), right)
            assert torch.equal(rows, right_rows)


def test_a_device_that_is_behind_still_gets_every_batch(device: torch.device) -> None:
    """What it has not copied yet is not written over."""
    batches = _sent(_Numbers(side_px=256), EpochBatches(NUM, BATCH, seed=3), device)
    got = []
    for pixels, rows in batches:
        if device.type == "cuda":
            torch.cuda._sleep(20_000_000)  # the next copy waits behind it
        got.append((pixels, rows))
    for pixels, rows in got:
        assert torch.equal(pixels.amin((1, 2, 3, 4)).cpu().long(), rows)
        assert torch.equal(pixels.amax((1, 2, 3, 4)).cpu().long(), rows)


def test_an_epoch_that_ends_early_leaves_the_next_one_right(device: torch.device) -> None:
    batches = _sent(_Numbers(), EpochBatches(NUM, BATCH, seed=3), device)
    next(iter(batches))
    for pixels, rows in batches:
        assert torch.equal(pixels[:, 0, 0, 0, 0].cpu().long(), rows)


def test_what_a_reading_process_cannot_read_is_reported() -> None:
    batches = _sent(_Numbers(missing=50), EpochBatches(NUM, BATCH, seed=None), torch.device("cpu"))
    with pytest.raises(OSError, match="row 50 is missing"):
        list(batches)


def test_reading_processes_end_with_them() -> None:
    before = multiprocessing.active_children()
    batches = _sent(_Numbers(), EpochBatches(NUM, BATCH, seed=None), torch.device("cpu"))
    list(batches)
    processes = [process for process in multiprocessing.active_children() if process not in before]
    assert len(processes) == WORKERS
    del batches
    gc.collect()
    assert not any(process.is_alive() for process in processes)
