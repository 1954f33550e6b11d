from __future__ import annotations

import gc
import multiprocessing
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tifffile
import torch

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import ConcentricPatches, patch_loader
from histo_monai.data.loaders.resident import ResidentPatches
from histo_monai.slides import Box, concentric_boxes, open_slide


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, pd.DataFrame]:
    folder = tmp_path_factory.mktemp("slides")
    generator = np.random.default_rng(0)
    slides, centers = [], []
    for number in range(3):
        path = folder / f"{number}.tif"
        pixels = generator.integers(0, 256, (512, 640, 3), dtype=np.uint8)
        tifffile.imwrite(
            path,
            pixels,
            tile=(128, 128),
            photometric="rgb",
            resolution=(10_000, 10_000),
            resolutionunit="CENTIMETER",
        )
        slides.append({"slide_id": f"s{number}", "path": str(path), "mpp": 1.0})
        centers += [{"slide_id": f"s{number}", "y": y, "x": x} for y, x in generator.integers(0, 500, (7, 2))]
    return pd.DataFrame(slides), pd.DataFrame(centers)


def _dataset(corpus: tuple[pd.DataFrame, pd.DataFrame], **changes: Any) -> ConcentricPatches:
    return ConcentricPatches(*corpus, **{"mpps": (1.0, 2.0, 4.0), "patch_px": 32, **changes})


def test_a_batch_is_what_reading_one_by_one_gives_in_the_order_asked(
    corpus: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    dataset = _dataset(corpus)
    order = np.random.default_rng(1).permutation(len(dataset)).tolist()
    patches, rows = dataset.__getitems__(order)
    assert rows.tolist() == order
    assert patches.shape == (21, 3, 3, 32, 32)
    for i, row in enumerate(order):
        center = corpus[1].iloc[row]
        with open_slide(corpus[0]["path"][int(center["slide_id"][1:])], 1.0) as slide:
            for scale, box in enumerate(concentric_boxes((center["y"], center["x"]), 32, (1.0, 2.0, 4.0))):
                assert np.array_equal(patches[i, scale].numpy(), slide.read(box))


@pytest.mark.parametrize("mpp", [1.0, 2.0])
def test_a_sample_of_two_centers_holds_the_patch_and_the_one_to_its_right(
    corpus: tuple[pd.DataFrame, pd.DataFrame], mpp: float
) -> None:
    """Both halves of one field of twice the width, in slides of 1 µm/px."""
    slides, _ = corpus
    centers = pd.DataFrame({"slide_id": ["s0", "s2"], "y": [200, 256], "x": [128, 300]})
    dataset = _dataset((slides, centers), mpps=(mpp,), offsets=((0.0, 0.0), (0.0, 1.0)))
    patches, _ = dataset.__getitems__([1, 0])
    assert patches.shape == (2, 2, 3, 32, 32)
    assert dataset.num_bytes == patches.numel()
    for sample, (path, y, x) in zip(
        patches.numpy(), ((slides["path"][2], 256, 300), (slides["path"][0], 200, 128)), strict=True
    ):
        with open_slide(path, 1.0) as slide:
            field = slide.read(Box((y, x + 16 * mpp), 64, mpp))[:, 16:48]
        assert np.array_equal(sample[0], field[:, :, :32])
        assert np.array_equal(sample[1], field[:, :, 32:])


def test_reading_processes_of_loaders_that_die_in_a_cycle_end_by_themselves(
    corpus: tuple[pd.DataFrame, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a trainer's do: torch would wait five seconds for each, and kill it."""
    killed: list[object] = []
    monkeypatch.setattr(
        multiprocessing.process.BaseProcess, "terminate", lambda process: killed.append(process)
    )
    loaders: Any = [
        patch_loader(_dataset(corpus), EpochBatches(21, 4, seed=0), workers=1, pin=False) for _ in range(2)
    ]
    for _ in zip(*loaders, strict=True):
        pass
    (first,), (second,) = (loader._iterator._workers for loader in loaders)
    for loader in loaders:
        loader.itself = loader
    del loaders, loader
    gc.collect()
    assert not killed
    assert not first.is_alive()
    assert not second.is_alive()


_LIVES_UNTIL_THE_END = """
import atexit
from torch.utils.data import dataloader
from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import patch_loader

class Numbers:
    def __len__(self):
        return 4

    def __getitems__(self, rows):
        return rows

kind = dataloader._MultiProcessingDataLoaderIter
reset = kind._reset
kind._clean_up_worker = staticmethod(lambda process: print("waits"))

def as_with_page_locked_memory(self, loader, first_iter=False):
    if first_iter:
        for process in self._workers:
            atexit.register(lambda process: print("alive" if process.is_alive() else "ended"), process)
            atexit.register(kind._clean_up_worker, process)
    reset(self, loader, first_iter)

kind._reset = as_with_page_locked_memory
loader = patch_loader(Numbers(), EpochBatches(4, 2, seed=0), workers=2, pin=False)
print(len(list(loader)))
"""


def test_reading_processes_of_a_loader_that_lives_until_the_end_end_before_torch_waits_for_them() -> None:
    """It does, five seconds for each, where memory is page-locked: this registers the same, in the same place."""
    done = subprocess.run(
        [sys.executable, "-c", _LIVES_UNTIL_THE_END], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["2", "ended", "ended"], done.stderr


def test_one_open_slide_is_enough(corpus: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    few, many = _dataset(corpus, max_open_slides=1), _dataset(corpus)
    order = list(range(21))
    assert torch.equal(few.__getitems__(order)[0], many.__getitems__(order)[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_do_not_depend_on_the_number_of_workers(
    corpus: tuple[pd.DataFrame, pd.DataFrame], workers: int
) -> None:
    loader = patch_loader(_dataset(corpus), EpochBatches(21, 4, seed=0), workers=workers, pin=False)
    expected = [_dataset(corpus).__getitems__(rows) for rows in EpochBatches(21, 4, seed=0)]
    resident = ResidentPatches(
        _dataset(corpus), EpochBatches(21, 4, seed=0), workers=workers, device=torch.device("cpu")
    )
    for got in (list(loader), list(resident), list(resident)):
        assert len(got) == len(expected) == 5
        for (patches, rows), (want, want_rows) in zip(got, expected, strict=True):
            assert torch.equal(patches, want)
            assert torch.equal(rows, want_rows)


def test_a_center_without_its_slide_is_named(corpus: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    slides, centers = corpus
    with pytest.raises(ValueError, match=r"slide 's2' is not in slides\.csv"):
        ConcentricPatches(slides.iloc[:2], centers, mpps=(1.0, 2.0, 4.0), patch_px=32)


def test_every_epoch_shows_all_rows_once_in_another_order_up_to_the_last_whole_batch() -> None:
    batches = EpochBatches(23, 5, seed=7)
    epochs = []
    for epoch in (1, 2):
        batches.set_epoch(epoch)
        epochs.append([row for batch in batches for row in batch])
        assert len(epochs[-1]) == len(set(epochs[-1])) == 20
    assert epochs[0] != epochs[1]
    batches.set_epoch(1)
    assert [row for batch in batches for row in batch] == epochs[0]


def test_parts_of_the_processes_make_up_the_batch_of_one() -> None:
    whole = list(EpochBatches(24, 6, seed=1))
    parts = [list(EpochBatches(24, 6, seed=1, rank=rank, world_size=3)) for rank in range(3)]
    assert whole == [a + b + c for a, b, c in zip(*parts, strict=True)]


def test_validation_keeps_order_and_every_row() -> None:
    assert [row for batch in EpochBatches(10, 4, seed=None) for row in batch] == list(range(10))


def test_batches_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="does not divide among 4 processes"):
        EpochBatches(100, 6, seed=0, world_size=4)
    with pytest.raises(ValueError, match="3 training samples do not fill a batch of 4"):
        EpochBatches(3, 4, seed=0)
