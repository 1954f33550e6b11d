"""Simulated dataset in the layout of a public one; its sizes are checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from histo_monai.utils.errors import InputError

MIN_SIDE_PX, MAX_SIDE_PX = 512, 120_000
MIN_MPP, MAX_MPP = 0.2, 1.0


@dataclass(frozen=True)
class SimulatedSize:
    """Numbers and sizes of slides and patches, and the seed.

    Attributes:
        seed: Number of the simulated dataset, 0 or more.
        num_slides: Training slides; half normal, half tumor for camelyon16, for pretraining in breastpathq,
            unused by kather.
        num_test_slides: Test slides of camelyon16, half of them with tumor; unused elsewhere.
        num_patches: Labeled patches of breastpathq (train, validation and test together) or of kather's training
            folder; unused by camelyon16.
        slide_side_px: Height and width of the slides' finest level.
        slide_mpp: Resolution of the finest level, µm per px.
    """

    seed: int
    num_slides: int
    num_test_slides: int
    num_patches: int
    slide_side_px: int
    slide_mpp: float


@dataclass(frozen=True)
class SimulatedDataset:
    """Layout of a simulated dataset.

    Attributes:
        name: Name of the dataset, for messages.
        write: Writes the tree below a folder with a number of processes. Equal sizes give equal bytes for any number
            of processes on one machine; the last bit of a float may differ between processor families.
        least_slides: Fewest training slides.
        least_patches: Fewest labeled patches.
    """

    name: str
    write: Callable[[Path, SimulatedSize, int], None]
    least_slides: int = 0
    least_patches: int = 0


def write_simulated(root: Path, dataset: SimulatedDataset, size: SimulatedSize, processes: int) -> None:
    """Write a simulated H&E dataset below `root`, in the folder tree of the real dataset.

    Args:
        root: Folder to write into; created if missing.
        processes: Number of rendering processes.

    Raises:
        InputError: A number is out of its range.
    """
    if size.seed < 0:
        raise InputError(f"seed: expected 0 or more, not {size.seed}")
    for name, value, needed in (
        ("num_slides", size.num_slides, dataset.least_slides),
        ("num_test_slides", size.num_test_slides, 0),
        ("num_patches", size.num_patches, dataset.least_patches),
        ("processes", processes, 1),
    ):
        if value < needed:
            raise InputError(f"{name}: expected {needed} or more for {dataset.name}, not {value}")
    if not MIN_SIDE_PX <= size.slide_side_px <= MAX_SIDE_PX:
        raise InputError(f"slide_side_px: expected {MIN_SIDE_PX}..{MAX_SIDE_PX}, not {size.slide_side_px}")
    if not MIN_MPP <= size.slide_mpp <= MAX_MPP:
        raise InputError(f"slide_mpp: expected {MIN_MPP}..{MAX_MPP} µm per px, not {size.slide_mpp}")
    dataset.write(Path(root), size, processes)
