"""Read tiled TIFF tile by tile with a tile cache: the base of the cuCIM backend, and the Pillow backend."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.resample import WHITE
from histo_monai.slides.tiff.decode import decode_tile
from histo_monai.slides.tiff.tables import Page
from histo_monai.slides.tiff.tiles import TileGuard
from histo_monai.slides.tile_cache import tile_cache
from histo_monai.utils.process.complaints import Complaints
from histo_monai.utils.process.threads import in_order

_ERRORS = (RuntimeError, ValueError, OverflowError, IndexError, MemoryError)
"""Errors that decoders raise for a damaged file."""

_RUN = 4
"""Tiles that a thread decodes before it requests more: a request costs a tenth of a tile's time."""

_TOGETHER_BYTES = 32 * 2**20
"""Most bytes of regions in one batch."""

_Place = tuple[int, int]


class TiffBackend:
    """A slide whose tiles are decoded by Pillow.

    Attributes:
        opening: Key of its tiles in caches, made for each opening: the file may change between openings.
    """

    name = "pillow"
    bounds_yx = (0, 0)  # No format of this backend states bounds.

    def __init__(self, path: Path, levels: Sequence[Page]) -> None:
        """Open a file and decode one tile of every level, to report an unreadable level early.

        Args:
            levels: The pages to read, each of a decodable kind.

        Raises:
            SlideError: A first tile is damaged.
        """
        self.level_sizes_yx = tuple(page.size_yx for page in levels)
        self._guard = TileGuard(path, levels)
        self.opening = object()
        for level in range(len(levels)):
            if self._guard.is_written(level, (0, 0)):
                self._guard.check(level, (0, 0))
                self._decode(level, (0, 0))

    @property
    def pages(self) -> Sequence[Page]:
        """The pages that are read, level by level."""
        return self._guard.levels

    def encoded(self, level: int, places: Sequence[_Place]) -> list[bytes]:
        """The bytes of tiles, checked; empty for a tile that the file does not hold.

        Raises:
            SlideError: A tile is damaged, or the file has changed since it was opened.
        """
        self._guard.check_unchanged()
        return [self._guard.checked(level, place) for place in places]

    def decoded(self, level: int, place: _Place) -> NDArray[np.uint8]:
        """The part of a written tile inside the level, shape (h, w, 3), RGB.

        Raises:
            SlideError: The tile is damaged.
        """
        return self._decode(level, place)

    def read_regions(
        self, level: int, corners_yx: Sequence[_Place], size_yx: _Place
    ) -> Iterator[NDArray[np.uint8]]:
        """Regions inside a level, in the given order (`backends.Backend`)."""
        self._guard.check_unchanged()
        together = max(1, _TOGETHER_BYTES // (3 * size_yx[0] * size_yx[1]))
        for first in range(0, len(corners_yx), together):
            yield from self._assemble(level, corners_yx[first : first + together], size_yx)

    def _assemble(self, level: int, corners_yx: Sequence[_Place], size_yx: _Place) -> list[NDArray[np.uint8]]:
        """Regions; each tile is decoded at most once."""
        regions = [np.empty((*size_yx, 3), np.uint8) for _ in corners_yx]
        above: dict[_Place, list[int]] = defaultdict(list)
        for number, corner in enumerate(corners_yx):
            for place in self._guard.under(level, corner, size_yx):
                above[place].append(number)
        for place, tile in self._tiles(level, list(above)):
            top, left = self._guard.field(level, place)[0]
            for number in above[place]:
                _paste(tile, (top - corners_yx[number][0], left - corners_yx[number][1]), regions[number])
        return regions

    def _tiles(self, level: int, places: Sequence[_Place]) -> Iterator[tuple[_Place, NDArray[np.uint8]]]:
        """Tiles with their rows and columns, cached tiles first."""
        cache, missing = tile_cache(), []
        for place in places:
            tile = cache.get((self.opening, level, place))
            if tile is not None:
                yield place, tile
            elif self._guard.is_written(level, place):
                missing.append(place)
            else:  # cuCIM returns black for most unwritten tiles.
                size_yx = self._guard.field(level, place)[1]
                yield place, np.broadcast_to(np.uint8(WHITE), (*size_yx, 3))
        for place, tile in zip(missing, self._decode_tiles(level, missing), strict=True):
            cache.put((self.opening, level, place), tile)
            yield place, tile

    def _decode_tiles(self, level: int, places: Sequence[_Place]) -> Iterator[NDArray[np.uint8]]:
        """Tiles in the given order, each checked before decoding."""
        for place in places:
            self._guard.check(level, place)
        runs = [places[first : first + _RUN] for first in range(0, len(places), _RUN)]
        decoded = in_order(lambda run: self._decode_quietly(level, run), runs)
        done, complaint = 0, ""
        for tiles, complaint in decoded:
            if complaint:
                decoded.close()
                break
            yield from tiles
            done += len(tiles)
        for place in places[done:]:  # Single-threaded decoding attributes the complaint to its tile.
            yield self._decode(level, place)
        if complaint:
            print(complaint, file=sys.stderr)

    def _decode_quietly(self, level: int, places: Sequence[_Place]) -> tuple[list[NDArray[np.uint8]], str]:
        """Tiles, or a decoder's complaint, which may come from another thread."""
        tiles = []
        for place in places:
            try:
                tile, complaint = self._decode_plainly(level, place)
            except _ERRORS as error:
                complaint = str(error) or type(error).__name__
            if complaint:
                return [], complaint
            tiles.append(tile)
        return tiles, ""

    def _decode(self, level: int, place: _Place) -> NDArray[np.uint8]:
        """A tile decoded by this thread alone; a complaint that does not recur was about another tile."""
        try:
            tile, complaint = self._decode_plainly(level, place)
            again = self._decode_plainly(level, place)[1] if complaint else ""
        except _ERRORS as error:
            raise self._guard.damaged(level, place, error) from error
        if again:
            raise self._guard.damaged(level, place, again)
        if complaint:
            print(complaint, file=sys.stderr)
        return tile

    def _decode_plainly(self, level: int, place: _Place) -> tuple[NDArray[np.uint8], str]:
        """The part of a tile inside the level, and the decoder's printed complaints."""
        height, width = self._guard.field(level, place)[1]
        with Complaints() as complaints:
            try:
                pixels = decode_tile(self._guard.levels[level], self._guard.data(level, place))
            except (OSError, SyntaxError) as error:  # Pillow's errors for damaged files.
                raise ValueError(str(error)) from error
        return np.ascontiguousarray(pixels[:height, :width]), complaints.text

    def close(self) -> None:
        """Close the file."""
        tile_cache().forget(self.opening)
        self._guard.close()


class LevelTiles(NamedTuple):
    """The tiles of one level of an open TIFF.

    Attributes:
        number: Of the level among those of the backend.
        size_yx: Height and width of the level, pixels, without padding to whole tiles.
    """

    backend: TiffBackend
    number: int
    size_yx: tuple[int, int]

    @property
    def page(self) -> Page:
        """How the tiles are encoded, and where."""
        return self.backend.pages[self.number]


def _paste(tile: NDArray[np.uint8], corner_yx: _Place, region: NDArray[np.uint8]) -> None:
    """Copy a tile into a region; the tile's corner counts from the region's."""
    (top, left), (height, width) = corner_yx, tile.shape[:2]
    part = tile[max(0, -top) : region.shape[0] - top, max(0, -left) : region.shape[1] - left]
    region[max(0, top) : top + height, max(0, left) : left + width] = part
