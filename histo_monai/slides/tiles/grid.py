"""Regular grid over a slide: square cells, one patch each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from histo_monai.utils.errors import InputError

MOST_CELLS = 10**8
"""Cell limit of a grid: 2.5 µm cells of 25 x 25 mm; their scores take 4 GB of memory."""


@dataclass(frozen=True)
class Grid:
    """Square cells that cover a slide, counted from its upper left corner.

    Cell (i, j) covers the level-0 pixels [i, i + 1) x [j, j + 1) times `downsample`, which may be fractional. Cells of
    the last row and column may reach beyond the slide.

    Attributes:
        stride_um: Side of a cell, and distance between patch centers, µm.
        slide_mpp: µm per level-0 pixel.
        size_yx: Height and width of the slide, level-0 pixels.
        bounds_yx: Corner of the slide's bounds, level-0 pixels.
    """

    stride_um: float
    slide_mpp: float
    size_yx: tuple[int, int]
    bounds_yx: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        lengths = (self.stride_um, self.slide_mpp, *self.size_yx)
        if not all(0 < length < math.inf for length in lengths):
            raise InputError(
                f"grid: got stride_um {self.stride_um}, slide_mpp {self.slide_mpp}, size {self.size_yx}. "
                "Fix: pass positive, finite lengths."
            )
        sides_um = [side * self.slide_mpp for side in self.size_yx]
        if (num := math.prod(sides_um) / self.stride_um**2) > MOST_CELLS:
            least_um = math.sqrt(math.prod(sides_um) / MOST_CELLS)
            raise InputError(
                f"stride_um: {self.stride_um:g} makes {num:.2g} cells of {sides_um[0] / 1000:.3g} x "
                f"{sides_um[1] / 1000:.3g} mm, more than {MOST_CELLS:.0e}. Fix: raise it to {least_um:.3g} or more."
            )

    @property
    def downsample(self) -> float:
        """Level-0 pixels per side of a cell."""
        return self.stride_um / self.slide_mpp

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        rows, columns = (max(1, math.ceil(size / self.downsample - 1e-6)) for size in self.size_yx)
        return rows, columns

    def centers_yx(self, cells: NDArray[np.int64]) -> NDArray[np.float64]:
        """Centers of cells (row, column), shape (n, 2), as (y, x) in continuous level-0 pixels, shape (n, 2)."""
        return np.asarray(cells, np.float64) * self.downsample + 0.5 * self.downsample
