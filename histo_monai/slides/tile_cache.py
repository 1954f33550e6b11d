"""Cache of the most recently used decoded tiles, so that neighboring patches decode a common tile once.

All open slides of a process use one cache, which bounds memory. A forked process starts with an empty cache.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 128 * 2**20
"""Limit per process: 680 tiles of 256 x 256 px, or 170 of 512 x 512."""

_ENTRY_BYTES = 512
"""Overhead of an entry beside its pixels, so that many small tiles are bounded too."""

Key = tuple[object, int, tuple[int, int]]
"""Object made for each opening of a file, level, row and column of the tile."""


class TileCache:
    """Thread-safe least-recently-used cache of tiles, at most `max_bytes` of pixels and overhead."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._tiles: OrderedDict[Key, NDArray[np.uint8]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._tiles)

    def get(self, key: Key) -> NDArray[np.uint8] | None:
        """The read-only tile of a key; None if not cached."""
        with self._lock:
            tile = self._tiles.get(key)
            if tile is not None:
                self._tiles.move_to_end(key)
            return tile

    def put(self, key: Key, tile: NDArray[np.uint8]) -> None:
        """Cache a tile and evict the least recently used ones."""
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
        """Evict all tiles of a closed file."""
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
