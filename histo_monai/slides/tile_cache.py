"""Decoded tiles of slides, those used last: what neighboring patches share is decoded once.

One cache for all slides that a process has open, so that its memory is bounded whatever is read. A process that is
forked starts with an empty one.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 128 * 2**20
"""Of a process: 680 tiles of 256 x 256 px, or 170 of 512 x 512."""

_ENTRY_BYTES = 512
"""What an entry takes beside its pixels, so that many small ones are bounded too."""

Key = tuple[object, int, tuple[int, int]]
"""Who opened the file (an object made for each opening), level, row and column of the tile."""


class TileCache:
    """Tiles used last, never more than so many bytes; threads may share it.

    Args:
        max_bytes: of all that is held, pixels and bookkeeping; a tile larger than that is not held.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._tiles: OrderedDict[Key, NDArray[np.uint8]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._tiles)

    def get(self, key: Key) -> NDArray[np.uint8] | None:
        """The tile of a key, not to be written to; None where it is not held."""
        with self._lock:
            tile = self._tiles.get(key)
            if tile is not None:
                self._tiles.move_to_end(key)
            return tile

    def put(self, key: Key, tile: NDArray[np.uint8]) -> None:
        """Hold a tile, in place of those used longest ago."""
        size = tile.nbytes + _ENTRY_BYTES
        if size > self.max_bytes:
            return
        with self._lock:
            self._drop(key)
            self._tiles[key] = tile
            self.num_bytes += size
            while self.num_bytes > self.max_bytes:
                self._drop(next(iter(self._tiles)))

    def forget(self, owner: object) -> None:
        """Let go of all tiles of a file that is closed."""
        with self._lock:
            for key in [key for key in self._tiles if key[0] is owner]:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        tile = self._tiles.pop(key, None)
        if tile is not None:
            self.num_bytes -= tile.nbytes + _ENTRY_BYTES


class _Process:
    """This process's cache."""

    cache = TileCache(MAX_BYTES)


def _forget_in_child() -> None:
    _Process.cache = TileCache(MAX_BYTES)


os.register_at_fork(after_in_child=_forget_in_child)


def tile_cache() -> TileCache:
    """The cache of this process."""
    return _Process.cache
