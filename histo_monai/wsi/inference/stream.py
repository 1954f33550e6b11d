"""Batches of a slide's tissue patches on the device."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from histo_monai.data.decoding.ahead import prepared_ahead
from histo_monai.data.decoding.choice import tile_store
from histo_monai.data.decoding.patches import is_decodable, read_patches
from histo_monai.data.decoding.tile_store import TileStore
from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import patch_loader
from histo_monai.slides import open_slide
from histo_monai.slides.tiles.blocks import CellBlocks
from histo_monai.slides.tiles.cells import slide_grid, tissue_cells
from histo_monai.slides.tiles.grid import Grid
from histo_monai.wsi.inference.models import MapPlan

_THREADS = 2
"""While one waits for the decoder of the device, the other one cuts patches."""


@dataclass(frozen=True)
class SlidePatches:
    """Patches around the center of every cell with tissue.

    Memory: at most 2 * workers + 3 blocks of patches (32 MiB each, plus a field of up to 4096 x 4096 px while reading),
    one batch in the network, and 40 bytes per cell. The batches depend on slide and plan only, not on `workers`.

    Attributes:
        grid: cell grid of the slide.
        cells: (n, 2), int64, (row, column).
        tissue: (n,), float32, tissue fraction of each cell, 0..1.
        blocks: patches, block by block.
        batch_size: patches per batch.
    """

    grid: Grid
    cells: NDArray[np.int64]
    tissue: NDArray[np.float32]
    blocks: CellBlocks
    batch_size: int

    @classmethod
    def find(cls, path: Path, mpp: float | None, plan: MapPlan, outlines: str = "") -> Self:
        """Patches of a slide's tissue.

        Args:
            mpp: µm per level-0 pixel; None: from the file.
            outlines: file of the user's outlines of tissue and artefacts; empty: none.

        Raises:
            SlideError: the slide cannot be read, or not at this resolution.
            InputError: the outlines are invalid, or the stride is no whole number of patch pixels.
        """
        with open_slide(path, mpp) as slide:
            grid = slide_grid(slide, plan.stride_um)
            cells, tissue = tissue_cells(slide, grid, plan.tissue, plan.min_tissue_fraction, outlines)
            blocks = CellBlocks(slide, grid, cells, patch_px=plan.patch_px, mpp=plan.mpp)
        return cls(grid, cells, tissue, blocks, plan.batch_size)

    def batches(
        self, device: torch.device, workers: int
    ) -> Generator[tuple[torch.Tensor, NDArray[np.int64]]]:
        """Batches (n, 3, P, P), float32, 0..1, channels last, on the device; and cell numbers.

        A GPU that decodes JPEG cuts the patches itself (`data.decoding`).

        Args:
            workers: reading processes; 0 reads in this process.

        Raises:
            SlideError: the file is damaged.
        """
        store = tile_store(device)
        try:
            if store is not None and is_decodable(self.blocks.slide(), [self.blocks.mpp], store):
                found = self._decoded(store)
            else:
                found = self._read(device, workers)
            with contextlib.closing(found):  # Its threads end before the slide is closed.
                for patches, numbers in found:
                    pixels = patches.to(torch.float32, memory_format=torch.channels_last).mul_(1 / 255)
                    yield pixels, numbers.numpy()
        finally:
            self.blocks.close()

    def _read(self, device: torch.device, workers: int) -> Generator[tuple[torch.Tensor, torch.Tensor]]:
        """Batches of patches that the CPU has decoded."""
        order = EpochBatches(len(self.blocks), 1, seed=None)
        loader = patch_loader(_BlockTensors(self.blocks), order, workers=workers, pin=device.type == "cuda")
        return _batches(loader, self.batch_size, device)

    def _decoded(self, store: TileStore) -> Generator[tuple[torch.Tensor, torch.Tensor]]:
        """Batches of patches that the device decodes."""
        slide, order = self.blocks.slide(), self.blocks.order
        batches = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]

        def prepare(numbers: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
            return read_patches(slide, self.blocks.boxes(numbers), store), torch.from_numpy(numbers)

        return prepared_ahead(batches, prepare, store.stream, _THREADS)


class _BlockTensors(Dataset[Any]):
    """Blocks as tensors."""

    def __init__(self, blocks: CellBlocks) -> None:
        self._blocks = blocks

    def __getitems__(self, indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        (index,) = indices
        patches, numbers = self._blocks[index]
        return torch.from_numpy(patches), torch.from_numpy(numbers)


def _batches(
    blocks: Iterable[tuple[torch.Tensor, torch.Tensor]], size: int, device: torch.device
) -> Generator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of `size`, the last one shorter, from blocks of any size."""
    left: list[tuple[torch.Tensor, torch.Tensor]] = []
    for patches, numbers in blocks:
        together = (*left, (patches.to(device, non_blocking=True), numbers))
        pixels, which = (torch.cat(parts) for parts in zip(*together, strict=True))
        whole = len(which) - len(which) % size
        for first in range(0, whole, size):
            yield pixels[first : first + size], which[first : first + size]
        left = [(pixels[whole:].clone(), which[whole:])] if whole < len(which) else []
    yield from left
