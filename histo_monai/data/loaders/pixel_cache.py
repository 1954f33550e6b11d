"""In-memory cache of decoded patches, with a limit."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 2**30


def shared_zeros(num_bytes: int) -> NDArray[np.uint8]:
    """Zeros in anonymous memory that forked processes use together; /dev/shm is small in containers."""
    return np.frombuffer(mmap.mmap(-1, max(num_bytes, 1)), dtype=np.uint8)[:num_bytes]


class PixelCache:
    """Cache of the first rows of a table that fit; each row is read once.

    Decoding tiles is the most expensive step of a patch, and epochs repeat rows. Processes forked later fill the
    same memory, which the system allocates page by page. Two processes that read one row write equal bytes.

    Args:
        shape: Shape of a row's pixels, uint8.
        max_bytes: Limit of the cache; later rows are read each time.
    """

    def __init__(self, num_rows: int, shape: tuple[int, ...], max_bytes: int = MAX_BYTES) -> None:
        row_bytes = int(np.prod(shape))
        self.shape = shape
        self.num = min(num_rows, max_bytes // row_bytes)
        self._pixels = shared_zeros(self.num * row_bytes).reshape(self.num, *shape)
        self._is_there = shared_zeros(self.num)

    def get(
        self, rows: NDArray[np.int64], read: Callable[[NDArray[np.int64]], NDArray[np.uint8]]
    ) -> NDArray[np.uint8]:
        """Pixels of `rows` in their order, a copy of shape (n, *shape).

        Args:
            rows: Shape (n,), may repeat.
            read: Reads missing rows -> pixels, shape (rows, *shape).
        """
        pixels = np.empty((len(rows), *self.shape), dtype=np.uint8)
        cached = rows < self.num
        cached[cached] = self._is_there[rows[cached]] != 0
        pixels[cached] = self._pixels[rows[cached]]
        if not cached.all():
            missing, places = np.unique(rows[~cached], return_inverse=True)
            fresh = read(missing)
            pixels[~cached] = fresh[places]
            fit = missing < self.num
            self._pixels[missing[fit]] = fresh[fit]
            self._is_there[missing[fit]] = 1  # After the pixels: other processes rely on it.
        return pixels

    def __getstate__(self) -> dict[str, object]:
        """Shape and size only: a spawned process begins with an empty cache."""
        return {"num": self.num, "shape": self.shape}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._pixels = shared_zeros(self.num * int(np.prod(self.shape))).reshape(self.num, *self.shape)
        self._is_there = shared_zeros(self.num)
