"""Batches of a training whose tiles are decoded on the device: those of the reading processes, within 2 levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.decoded import DecodedPatches, store_for
from histo_monai.data.loaders.loaders import ConcentricPatches, patch_loader
from tests.data.decoding.codecs import opened, store_on

NAMES = ("breast-lobular.tif", "cmu-1-small-region.svs")


@pytest.fixture
def dataset(real_slides: Path) -> ConcentricPatches:
    """Triples of two slides, two centers a sample."""
    rows, centers = [], []
    generator = np.random.default_rng(0)
    for name in NAMES:
        with opened(real_slides / name) as slide:
            rows.append({"slide_id": name, "path": str(real_slides / name), "mpp": slide.mpp})
            places = generator.integers(100, np.array(slide.size_yx) - 100, (9, 2))
            centers += [{"slide_id": name, "y": y, "x": x} for y, x in places]
    mpps = (0.5, 1.0, 2.2)
    offsets = ((0.0, 0.0), (1.0, 0.5))
    return ConcentricPatches(
        pd.DataFrame(rows), pd.DataFrame(centers), mpps=mpps, patch_px=32, offsets=offsets
    )


def test_batches_are_those_of_a_loader(dataset: ConcentricPatches, device: torch.device) -> None:
    plain = patch_loader(dataset, EpochBatches(len(dataset), 3, seed=3), workers=0, pin=False)
    store = store_on(device)
    assert dataset.suits(store)
    decoded = DecodedPatches(dataset, EpochBatches(len(dataset), 3, seed=3), store)
    assert len(decoded) == len(plain)
    for _ in range(2):
        for (pixels, rows), (right, right_rows) in zip(decoded, plain, strict=True):
            assert pixels.device == device
            assert torch.equal(rows, right_rows)
            assert (pixels.cpu().int() - right.int()).abs().max() <= 2


def test_an_epoch_that_ends_early_leaves_the_next_one_whole(
    dataset: ConcentricPatches, device: torch.device
) -> None:
    decoded = DecodedPatches(dataset, EpochBatches(len(dataset), 3, seed=3), store_on(device))
    next(iter(decoded))
    assert sorted(int(row) for _, rows in decoded for row in rows) == list(range(len(dataset)))


def test_a_training_on_the_cpu_reads_by_processes(dataset: ConcentricPatches) -> None:
    assert store_for(dataset, 0, torch.device("cpu")) is None
