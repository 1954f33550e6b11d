"""Decoded tiles in the memory of a device; the least recently used ones make room."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.data.decoding.codec import TileCodec
from histo_monai.slides.resample import WHITE
from histo_monai.slides.tiff import LevelTiles
from histo_monai.utils.transfer import sent

MEMORY_FRACTION = 1 / 16
"""Fraction of a GPU's free memory for the tiles of one size."""

_CPU_BYTES = 64 * 2**20
_MOST_CUT_BYTES = 2 * 2**30
_TOGETHER = 512
"""Tiles that are decoded by one call."""

_Place = tuple[int, int]
_Key = tuple[object, int, _Place]
"""Opening of a file, level, row and column."""


class _Slots(NamedTuple):
    """Tiles of one size.

    Attributes:
        pixels: Shape (1 + number of slots, 3, h, w), uint8; the first one is white.
        used: Key of a tile -> slot, least recently used first.
        free: Slots without a tile.
    """

    pixels: torch.Tensor
    used: OrderedDict[_Key, int]
    free: list[int]


class TileStore:
    """Tiles of open slides on a device.

    Args:
        codec: Decodes what it can; `LevelTiles.backend` decodes the others.
        max_bytes: Of the tiles of one size; None: `MEMORY_FRACTION` of the free memory of a GPU.

    Attributes:
        stream: CUDA stream of all work on the tiles; None on a CPU.
    """

    def __init__(self, codec: TileCodec, device: torch.device, max_bytes: int | None = None) -> None:
        self.codec, self.device = codec, device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._lock = threading.RLock()
        self._max_bytes = max_bytes
        self._read: deque[tuple[torch.cuda.Event, list[torch.Tensor]]] = deque()
        self._sizes: dict[_Place, _Slots] = {}

    def most_tiles(self, tile_yx: _Place) -> int:
        """Number of tiles of a size that one request may have: half of the slots, as two threads may ask at once."""
        return (len(self._slots(tile_yx).pixels) - 1) // 2

    def __len__(self) -> int:
        """Number of tiles that are there."""
        return sum(len(slots.used) for slots in self._sizes.values())

    @contextlib.contextmanager
    def holding(self, tiles: LevelTiles, places: Sequence[_Place]) -> Iterator[NDArray[np.int64]]:
        """Slots of tiles, decoded if they are not there; 0, white, for a tile that the file does not hold.

        While it lasts no other thread changes a slot, and work goes to the store's stream.

        Args:
            places: Row and column of each tile, none twice, at most `most_tiles`.

        Raises:
            SlideError: A tile is damaged, or the file has changed.
        """
        keys: list[_Key] = [(tiles.backend.opening, tiles.number, place) for place in places]
        while True:
            with self._lock:
                slots = self._slots(tiles.page.tile_yx)
                self._forget_read()
                missing = [key for key in keys if key not in slots.used]
                for key in keys:
                    if key in slots.used:
                        slots.used.move_to_end(key)
                if not missing:
                    with torch.cuda.stream(self.stream):
                        yield np.array([slots.used[key] for key in keys], dtype=np.int64)
                    return
            for first in range(0, len(missing), _TOGETHER):
                self._decode(tiles, slots, missing[first : first + _TOGETHER])

    def pixels(self, tile_yx: _Place) -> torch.Tensor:
        """All slots of tiles of a size, shape (n, 3, *tile_yx), uint8."""
        return self._slots(tile_yx).pixels

    def _decode(self, tiles: LevelTiles, slots: _Slots, keys: Sequence[_Key]) -> None:
        """Decode tiles without the lock, so that another thread may cut patches meanwhile, and store them."""
        encoded = tiles.backend.encoded(tiles.number, [place for _, _, place in keys])
        written = [(key, data) for key, data in zip(keys, encoded, strict=True) if data]
        with torch.cuda.stream(self.stream):
            decoded = self.codec.decode(tiles.page, [data for _, data in written])
            whole = [
                self._by_cpu(tiles, key[2]) if pixels is None else pixels
                for (key, _), pixels in zip(written, decoded, strict=True)
            ]
            with self._lock:
                slots.used.update((key, 0) for key, data in zip(keys, encoded, strict=True) if not data)
                if whole:
                    self._store(tiles, slots, [key for key, _ in written], whole)

    def _store(
        self, tiles: LevelTiles, slots: _Slots, keys: Sequence[_Key], whole: list[torch.Tensor]
    ) -> None:
        """Write tiles to slots; those that another thread has stored meanwhile stay."""
        for key in keys:
            if key in slots.used:
                slots.used.move_to_end(key)
        fresh = {key: pixels for key, pixels in zip(keys, whole, strict=True) if key not in slots.used}
        if not fresh:
            return
        pixels = torch.stack(list(fresh.values()))
        where = [self._free_slot(slots) for _ in fresh]
        try:
            slots.pixels[sent(torch.tensor(where), self.device)] = pixels
            for (_, _, place), slot in zip(fresh, where, strict=True):
                self._whiten(tiles, place, slots.pixels[slot])
        except BaseException:
            slots.free.extend(where)
            raise
        slots.used.update(zip(fresh, where, strict=True))
        if self.stream is not None:  # The codec's memory may be used again only when it has been read.
            self._read.append((self.stream.record_event(), whole))

    def _forget_read(self) -> None:
        """Give back the codec's memory of tiles that have been copied to their slots."""
        while self._read and self._read[0][0].query():
            self._read.popleft()

    @staticmethod
    def _free_slot(slots: _Slots) -> int:
        while not slots.free:
            _, slot = slots.used.popitem(last=False)
            if slot:
                slots.free.append(slot)
        return slots.free.pop()

    def _by_cpu(self, tiles: LevelTiles, place: _Place) -> torch.Tensor:
        """A tile decoded by the CPU, filled up with white to its whole size."""
        pixels = torch.from_numpy(np.ascontiguousarray(tiles.backend.decoded(tiles.number, place)))
        whole = torch.full((3, *tiles.page.tile_yx), WHITE, dtype=torch.uint8)
        whole[:, : pixels.shape[0], : pixels.shape[1]] = pixels.permute(2, 0, 1)
        return whole.to(self.device)

    @staticmethod
    def _whiten(tiles: LevelTiles, place: _Place, pixels: torch.Tensor) -> None:
        """Make a tile white outside of its level."""
        height, width = (tiles.size_yx[axis] - place[axis] * tiles.page.tile_yx[axis] for axis in (0, 1))
        if height < pixels.shape[1]:
            pixels[:, max(height, 0) :] = WHITE
        if width < pixels.shape[2]:
            pixels[:, :, max(width, 0) :] = WHITE

    def _slots(self, tile_yx: _Place) -> _Slots:
        with self._lock:
            if tile_yx not in self._sizes:
                budget = self._max_bytes or self._budget()
                number = max(2, budget // (3 * tile_yx[0] * tile_yx[1]))
                pixels = torch.empty((1 + number, 3, *tile_yx), dtype=torch.uint8, device=self.device)
                pixels[0] = WHITE
                self._sizes[tile_yx] = _Slots(pixels, OrderedDict(), list(range(number, 0, -1)))
            return self._sizes[tile_yx]

    def _budget(self) -> int:
        if self.device.type != "cuda":
            return _CPU_BYTES
        return int(MEMORY_FRACTION * torch.cuda.mem_get_info(self.device)[0])

    @functools.cached_property
    def most_cut_bytes(self) -> int:
        """Most bytes of memory that patches which are cut together may need."""
        return min(_MOST_CUT_BYTES, self._budget())
