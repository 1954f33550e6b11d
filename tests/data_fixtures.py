"""Simulated trees of labeled patches, their zips, and small images, that several tests read."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import tifffile

from histo_monai.data.readers.breastpathq import reader as breastpathq
from histo_monai.data.simulated import SimulatedDataset, SimulatedSize, write_simulated
from histo_monai.data.simulated.datasets import breastpathq as simulated_breastpathq
from histo_monai.data.simulated.datasets import kather as simulated_kather
from histo_monai.data.tables.patches import LabeledDataset


def _simulated(root: Path, dataset: SimulatedDataset, num_patches: int) -> Path:
    size = SimulatedSize(
        seed=3, num_slides=0, num_test_slides=0, num_patches=num_patches, slide_side_px=512, slide_mpp=1.0
    )
    write_simulated(root, dataset, size, processes=1)
    return root


@pytest.fixture(scope="session")
def breastpathq_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _simulated(tmp_path_factory.mktemp("breastpathq"), simulated_breastpathq.SIMULATED, 24)


@pytest.fixture(scope="session")
def kather_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _simulated(tmp_path_factory.mktemp("kather"), simulated_kather.SIMULATED, 27)


@pytest.fixture(scope="session")
def read_breastpathq() -> Callable[..., LabeledDataset]:
    """Reads a tree with the columns of the phantom's tables of test scores, or with others."""

    def read(root: Path, **changes: Any) -> LabeledDataset:
        settings = {"slide_column": "slide", "region_column": "rid"}
        for rater, column in (("rater_a", "p1"), ("rater_b", "p2")):
            settings[rater] = SimpleNamespace(file="test_labels.csv", column=column)  # type: ignore[assignment]
        return breastpathq.labeled_patches(root, **{**settings, **changes})

    return read


@pytest.fixture(scope="session")
def zipped() -> Callable[..., None]:
    """Puts a folder in a zip, with its own name as the leading folder of every member, or without."""

    def pack(folder: Path, archive: Path, leading: bool = True) -> None:
        with zipfile.ZipFile(archive, "w") as into:
            for path in sorted(folder.rglob("*")):
                name = path.relative_to(folder.parent if leading else folder)
                into.write(path, name)

    return pack


@pytest.fixture(scope="session")
def write_slide() -> Callable[..., Path]:
    """Writes a slide of noise, 512 × 640 px, 1 µm/px."""

    def write(path: Path, seed: int) -> Path:
        pixels = np.random.default_rng(seed).integers(0, 256, (16, 20, 3), dtype=np.uint8)
        resolution = {"resolution": (10_000, 10_000), "resolutionunit": "CENTIMETER"}
        enlarged = cv2.resize(pixels, (640, 512), interpolation=cv2.INTER_CUBIC)
        tifffile.imwrite(path, enlarged, tile=(128, 128), photometric="rgb", **resolution)
        return path

    return write


@pytest.fixture(scope="session")
def write_image() -> Callable[..., Path]:
    """Writes an image of noise, or the pixels given."""

    def write(path: Path, seed: int = 0, pixels: np.ndarray | None = None) -> Path:
        if pixels is None:
            pixels = np.random.default_rng(seed).integers(0, 256, (24, 24, 3), dtype=np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        is_color = pixels.ndim == 3
        order = [2, 1, 0, 3][: pixels.shape[2]] if is_color else slice(None)
        assert cv2.imwrite(str(path), pixels[..., order] if is_color else pixels)
        return path

    return write
