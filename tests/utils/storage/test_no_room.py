"""Every kind of file on a disk, or under a limit, that is too small for it: one line, nothing left, and no signal."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tifffile
import torch
from matplotlib import image

from histo_monai.models.checkpoint import save_model
from histo_monai.slides.tiles.grid import Grid
from histo_monai.utils.storage import DiskFullError, whole_file, whole_folder, write_json
from histo_monai.wsi.heatmaps.origin import Origin
from histo_monai.wsi.inference.patch_features import PatchFeatures, write_features

DISK_FULL, WRITTEN = 21, 0


def _features(folder: Path) -> None:
    num, drawn = 600, np.random.default_rng(0)
    grid = Grid(32.0, 1.0, (4000, 4000))
    cells = drawn.integers(0, 100, (num, 2))
    seen = drawn.random((num, 64)).astype(np.float32)
    found = PatchFeatures(grid, cells, np.ones(num, np.float32), seen, 32, 1.0)
    write_features(folder / "a.h5", found, encoder="x", origin=Origin(1, "a", 1.0, {}, (), {}))


def _tiff(folder: Path) -> None:
    with whole_file(folder / "a.tif") as draft, tifffile.TiffWriter(draft) as writer:
        writer.write(np.random.default_rng(0).integers(0, 255, (256, 256, 3), np.uint8), tile=(128, 128))


def _png(folder: Path) -> None:
    with whole_file(folder / "a.png") as draft:
        image.imsave(draft, np.random.default_rng(0).integers(0, 255, (256, 256, 3), np.uint8))


def _table(folder: Path) -> None:
    with whole_folder(folder / "a") as draft:
        pd.DataFrame(np.random.default_rng(0).random((5000, 3))).to_csv(draft / "a.csv")


def _model(folder: Path) -> None:
    save_model(folder / "a.safetensors", {"a": torch.zeros(50_000)}, {"kind": "none"})


def _pickle(folder: Path) -> None:
    with whole_folder(folder / "a") as draft:
        torch.save({"a": torch.zeros(50_000)}, draft / "a.pt")


def _json(folder: Path) -> None:
    write_json(folder / "a.json", {"a": list(range(50_000))})


WRITERS = {each.__name__[1:]: each for each in (_features, _tiff, _png, _table, _model, _pickle, _json)}
ORDER = [
    *("name", "encoder", "encoder_sha256", "slide_sha256", "coordinates_sha256"),
    *("patch_size", "patch_level", "patch_size_level0", "overlap", "level0_width", "level0_height"),
    *(
        "level0_magnification",
        "target_magnification",
        "mpp",
        "level0_mpp",
        "stride_um",
        "origin",
        "level0_bounds_y",
        "level0_bounds_x",
        *("patch_px", "depth", "stored_as", "code_sha256"),
        "made_from",
    ),
]
"""In which attributes are written."""
BYTES = (0, 1, 1000, 2**13, 2**15, 2**16)


def _ended(write: Callable[[Path], None], folder: Path, max_bytes: int | None) -> int:
    """Exit code of a child that writes; negative where a signal ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if max_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
            write(folder)
            code = WRITTEN
        except DiskFullError as error:
            line = str(error)
            code = DISK_FULL if line.startswith(str(folder)) and "\n" not in line else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("max_bytes", BYTES)
@pytest.mark.parametrize("name", WRITERS)
def test_a_limit_on_the_size_of_files_is_one_line(name: str, max_bytes: int, tmp_path: Path) -> None:
    assert _ended(WRITERS[name], tmp_path, max_bytes) == DISK_FULL
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_of_some_kilobytes_is_one_line(name: str, tiny_disk: Path) -> None:
    assert _ended(WRITERS[name], tiny_disk, None) == DISK_FULL
    assert list(tiny_disk.iterdir()) == []


@pytest.mark.parametrize("name", WRITERS)
def test_where_there_is_room_it_is_written(name: str, tmp_path: Path) -> None:
    assert _ended(WRITERS[name], tmp_path, 2**24) == WRITTEN
    assert list(tmp_path.iterdir())


def test_features_in_memory_have_the_bytes_that_hdf5_writes_to_a_disk(tmp_path: Path) -> None:
    import h5py

    _features(tmp_path)
    aligned = {"alignment_threshold": 64, "alignment_interval": 64}
    with h5py.File(tmp_path / "a.h5") as ours, h5py.File(tmp_path / "b.h5", "w", **aligned) as plain:
        for name in ("features", "coords", "patch_id", "cells", "tissue"):
            chunks = ours[name].chunks
            dataset = plain.create_dataset(name, data=ours[name][:], chunks=chunks)
            for key in sorted(ours[name].attrs, key=ORDER.index):
                value = ours[name].attrs[key]
                dataset.attrs[key] = value.item() if hasattr(value, "item") else value
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
