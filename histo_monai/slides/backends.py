"""Interface of a slide-decoding library: level pixels, order y, x."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Backend(Protocol):
    """One open file in one library.

    Attributes:
        name: Name of the library.
        level_sizes_yx: Height and width of each level, finest first.
        bounds_yx: Corner of the bounds on the canvas, level-0 pixels.
    """

    name: str
    level_sizes_yx: tuple[tuple[int, int], ...]
    bounds_yx: tuple[int, int]

    def read_regions(
        self, level: int, corners_yx: Sequence[tuple[int, int]], size_yx: tuple[int, int]
    ) -> Iterator[NDArray[np.uint8]]:
        """Regions inside a level, in the given order, each of shape (*size_yx, 3), uint8."""

    def close(self) -> None:
        """Close the file."""
