"""Patches that stay on the device: the batches of a loader, each row read once and when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from histo_monai.data.loaders.batches import Batches, EpochBatches, ShuffledBatches, WeightedBatches
from histo_monai.data.loaders.loaders import PatchDataset, Patches, patch_loader
from histo_monai.data.loaders.resident import ResidentPatches

NUM = 23


class _Pixels(PatchDataset):
    """Row r is full of r; counts how often a row is read, in this process."""

    def __init__(self) -> None:
        self.times = np.zeros(NUM, dtype=int)

    @property
    def num_bytes(self) -> int:
        return NUM * 3 * 4 * 4

    def __len__(self) -> int:
        return NUM

    def __getitems__(self, rows: Sequence[int]) -> Patches:
        np.add.at(self.times, list(rows), 1)
        pixels = torch.as_tensor(rows, dtype=torch.uint8).view(-1, 1, 1, 1, 1).expand(-1, 1, 3, 4, 4)
        return pixels.clone(), torch.as_tensor(rows, dtype=torch.int64)


def _ways() -> dict[str, Batches]:
    chances = np.arange(NUM) / np.arange(NUM).sum()
    return {
        "each row once": EpochBatches(NUM, 5, seed=3),
        "in order": EpochBatches(NUM, 5, seed=None),
        "endless": ShuffledBatches(NUM, 8, num_batches=7, seed=3, purpose="test"),
        "drawn": WeightedBatches(chances, 8, num_batches=2, seed=3, purpose="test"),
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("way", list(_ways()))
def test_batches_are_those_of_a_loader(way: str, workers: int, device: torch.device) -> None:
    order = _ways()[way]
    plain = patch_loader(_Pixels(), order, workers=0, pin=False)
    resident = ResidentPatches(_Pixels(), _ways()[way], workers=workers, device=device)
    assert len(resident) == len(plain)
    for epoch in range(1, 5):
        order.set_epoch(epoch)
        resident.batch_sampler.set_epoch(epoch)
        for (pixels, rows), (right, right_rows) in zip(resident, plain, strict=True):
            assert pixels.device == device
            assert rows.device == device
            assert torch.equal(pixels.cpu(), right)
            assert torch.equal(rows.cpu(), right_rows)


def test_a_row_is_read_once_and_when_it_is_asked_for() -> None:
    dataset, batches = _Pixels(), _ways()["endless"]
    resident = ResidentPatches(dataset, batches, workers=0, device=torch.device("cpu"))
    seen: set[int] = set()
    for epoch in (1, 2, 3):
        batches.set_epoch(epoch)
        for _, rows in resident:
            seen |= set(rows.tolist())
            assert set(np.flatnonzero(dataset.times)) == seen
            assert dataset.times.max() == 1


def test_an_epoch_that_ends_early_loses_nothing() -> None:
    dataset = _Pixels()
    resident = ResidentPatches(dataset, EpochBatches(NUM, 5, seed=3), workers=2, device=torch.device("cpu"))
    next(iter(resident))
    for pixels, rows in resident:
        assert torch.equal(pixels[:, 0, 0, 0, 0].long(), rows)
