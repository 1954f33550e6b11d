"""Read patches of neighboring cells together, so that each tile under them is decoded once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from histo_monai.slides import Box, Slide, SlidePool
from histo_monai.slides.tiles.grid import Grid
from histo_monai.utils.errors import InputError

_SOURCE_PX = 4096
_PATCH_BYTES = 32 * 2**20
_MOST_STRIDE_UM = 100_000  # No glass slide is longer.


class CellBlocks(Sequence[tuple[NDArray[np.uint8], NDArray[np.int64]]]):
    """Patches around the centers of grid cells, one square block of neighbors per item.

    All patches of a block are windows of one field. They equal `Slide.read_many` byte for byte where `mpp` is a whole
    multiple of the source level. Elsewhere the field is resampled once, and a few tissue pixels differ by some gray
    levels.

    A block's field spans at most 4096 x 4096 pixels of the source level and its patches at most 32 MiB (or the block is
    one patch). Pickling drops the file handle; each reading process opens its own.

    Args:
        slide: Open slide; only its path, levels and resolution are used.
        cells: (row, column), shape (n, 2).
        patch_px: P, side of a patch.
        mpp: Resolution of the patches, µm per px; an attribute.

    Raises:
        InputError: The stride is no whole number of patch pixels.
        SlideError: The patches are finer than the slide by more than 10 %.
    """

    def __init__(
        self, slide: Slide, grid: Grid, cells: NDArray[np.int64], *, patch_px: int, mpp: float
    ) -> None:
        self._stride_px = whole_stride(grid.stride_um, mpp)
        self._path, self._slide_mpp, self._downsample = slide.path, slide.mpp, grid.downsample
        self._cells, self._patch_px, self.mpp = cells, patch_px, mpp
        self._pool = SlidePool(1)
        level_mpp = slide.level_mpps[slide.level_for(mpp)]
        by_source = int(_SOURCE_PX * level_mpp / mpp - patch_px) // self._stride_px + 1
        by_bytes = math.isqrt(_PATCH_BYTES // (3 * patch_px**2))
        side = max(1, min(by_source, by_bytes))
        _, block = np.unique(cells // side, axis=0, return_inverse=True)
        numbers = np.argsort(block.ravel(), kind="stable")
        self._numbers = np.split(numbers, np.cumsum(np.bincount(block.ravel()))[:-1]) if len(cells) else []

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:  # type: ignore[override]
        """The patches of a block, shape (n, 3, P, P), uint8, RGB, and the numbers of their cells, shape (n,), int64.

        Raises:
            SlideError: The file is damaged there.
        """
        numbers = self._numbers[index]
        cells = self._cells[numbers]
        first = cells.min(axis=0)
        steps = int((cells.max(axis=0) - first).max())
        y, x = (first + (steps + 1) / 2) * self._downsample
        side_px = steps * self._stride_px + self._patch_px
        field = self.slide().read(Box((float(y), float(x)), side_px, self.mpp))
        windows = sliding_window_view(field, (self._patch_px, self._patch_px), axis=(1, 2))
        rows, columns = ((cells - first) * self._stride_px).T
        return windows.transpose(1, 2, 0, 3, 4)[rows, columns], numbers

    @property
    def order(self) -> NDArray[np.int64]:
        """Numbers of all cells, block after block."""
        return np.concatenate([*self._numbers, np.zeros(0, dtype=np.int64)])

    def slide(self) -> Slide:
        """The slide, opened by this process."""
        return self._pool.get(self._path, self._slide_mpp)

    def boxes(self, numbers: NDArray[np.int64]) -> list[Box]:
        """The patches of cells by their numbers."""
        centers = (self._cells[numbers] + 0.5) * self._downsample
        return [Box((float(y), float(x)), self._patch_px, self.mpp) for y, x in centers]

    def close(self) -> None:
        """Close the file if this process opened it."""
        self._pool.close()


def whole_stride(stride_um: float, mpp: float) -> int:
    """The stride of the grid in patch pixels.

    Raises:
        InputError: The stride is no whole number of at least 1.
    """
    if not 0 < stride_um <= _MOST_STRIDE_UM:
        raise InputError(
            f"stride_um: got {stride_um:g}. Fix: set a positive number of µm, at most {_MOST_STRIDE_UM}."
        )
    stride_px = round(stride_um / mpp)
    if stride_px < 1 or abs(stride_um / mpp - stride_px) > 1e-6:
        better = max(1, stride_px) * mpp
        raise InputError(
            f"stride_um: {stride_um:g} µm is {stride_um / mpp:g} pixels of {mpp:g} µm, not a whole number. "
            f"Fix: set stride_um to {better:g}"
        )
    return stride_px
