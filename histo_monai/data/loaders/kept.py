"""Pixels that were read once and will be asked for again: kept in memory, up to a limit."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 2**30


def shared_zeros(num_bytes: int) -> NDArray[np.uint8]:
    """Zeros that forked processes share, in no file and outside /dev/shm, which containers keep small."""
    return np.frombuffer(mmap.mmap(-1, max(num_bytes, 1)), dtype=np.uint8)[:num_bytes]


class KeptPixels:
    """The first rows of a table, as many as fit, each read once by whoever asks first.

    Epochs ask for the same rows again and again, and decoding a tile costs more than anything else that happens to a
    patch. The memory is shared with processes that are forked afterwards, so reading processes fill it together, and
    is taken from the system page by page as rows come. Two that read one row at a time write the same bytes.

    Args:
        shape: of a row's pixels, uint8.
        max_bytes: of all that are kept; later rows are read each time.
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
        """Pixels of `rows`, each row's own; `read` gives those of rows that are not here.

        Args:
            rows: Shape (n,), some may come twice.
            read: Rows -> pixels, shape (rows, *shape).

        Returns:
            Shape (n, *shape), a copy.
        """
        pixels = np.empty((len(rows), *self.shape), dtype=np.uint8)
        here = rows < self.num
        here[here] = self._is_there[rows[here]] != 0
        pixels[here] = self._pixels[rows[here]]
        if not here.all():
            missing, places = np.unique(rows[~here], return_inverse=True)
            fresh = read(missing)
            pixels[~here] = fresh[places]
            fit = missing < self.num
            self._pixels[missing[fit]] = fresh[fit]
            self._is_there[missing[fit]] = 1  # after the pixels: another process believes it
        return pixels

    def __getstate__(self) -> dict[str, object]:
        """A process that is spawned begins with nothing kept: memory is not sent, and not shared, by pickling."""
        return {"num": self.num, "shape": self.shape}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._pixels = shared_zeros(self.num * int(np.prod(self.shape))).reshape(self.num, *self.shape)
        self._is_there = shared_zeros(self.num)
