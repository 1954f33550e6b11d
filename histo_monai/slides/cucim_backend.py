"""Slides in cuCIM, tile by tile; never its cache of decoded tiles, but one of our own.

cuCIM takes positions as (x, y) in level-0 pixels and rounds them down to whole pixels of the level.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histo_monai.errors import InputError
from histo_monai.process.quiet import quiet_library
from histo_monai.process.threads import in_order
from histo_monai.slides.complaints import Complaints
from histo_monai.slides.resample import WHITE
from histo_monai.slides.tiff import (
    ADOBE_DEFLATE,
    DEFLATE,
    JPEG,
    JPEG2000,
    LZW,
    UNCOMPRESSED,
    Page,
    TileGuard,
)
from histo_monai.slides.tile_cache import tile_cache

SUFFIXES = (".svs", ".tif", ".tiff")
"""Names of files that cuCIM reads."""

_RGB, _YCBCR = 2, 6
_COLORS = {
    **dict.fromkeys((UNCOMPRESSED, LZW, DEFLATE, ADOBE_DEFLATE), (_RGB,)),
    **dict.fromkeys((JPEG, *JPEG2000), (_RGB, _YCBCR)),
}
"""TIFF's photometric interpretations that cuCIM reads, by codec."""

_ERRORS = (RuntimeError, ValueError, OverflowError, IndexError, MemoryError)
"""What cuCIM raises where a file is damaged."""

_RUN = 4
"""Tiles that a thread decodes before it asks for more: to ask takes a tenth of the time that one takes."""

_TOGETHER_BYTES = 32 * 2**20
"""Of regions that are put together at a time."""

_Place = tuple[int, int]

_is_loaded = False


def why_not_cucim(path: Path, pages: list[Page]) -> str | None:
    """Why cuCIM is not asked to read a file, or None."""
    if path.suffix.lower() not in SUFFIXES or not pages:
        return f"it reads tiled TIFF ({', '.join(SUFFIXES)}) only"
    for page in pages:
        # cuCIM asks libtiff for the predictor of every image; its libtiff knows none but LZW's, and ends the process.
        if page.predictor is not None and page.compression != LZW:
            return f"it does not open files with a predictor for TIFF compression {page.compression}"
    return _why_not_decoded(pages[0])


def _why_not_decoded(page: Page) -> str | None:
    """Why cuCIM would not read an image as it is meant, or None."""
    if not page.is_tiled:
        return "the image is not tiled"
    if page.num_channels != 3 or page.bits != 8 or not page.is_unsigned or page.is_planar:
        return f"the image has {page.num_channels} channels of {page.bits} bits, not 3 of 8, interleaved"
    if page.compression not in _COLORS:
        return f"it does not decode TIFF compression {page.compression}"
    if page.photometric not in _COLORS[page.compression]:
        return f"it does not read the colors of photometric interpretation {page.photometric}"
    if page.predictor not in (None, 1, 2):
        return f"it does not undo predictor {page.predictor}"
    return None


_GPUS = ("/dev/nvidiactl", "/dev/dxg")
"""Of which one is there where a driver is, the second in Windows' subsystem for Linux."""


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """What cuCIM and the libraries below it read when they load, whatever files of settings the user has.

    No cache: it takes tiles of different slides for one another: of 32 slides read in one process two came back with
    tiles of others, at every reading, kept open or not (seen in 26.10; none without the cache).

    No cuFile where there is no GPU to read to: that of torch 2.15 (1.17), once torch has loaded it, looks for one for
    minutes, at full load (that of torch 2.11, 1.15, for none).
    """
    wanted: dict[str, dict[str, Any]] = {
        "CUCIM_CONFIG_PATH": {"cache": {"type": "nocache", "memory_capacity": 0}}
    }
    if not any(map(os.path.exists, _GPUS)):
        wanted["CUFILE_ENV_PATH_JSON"] = {"properties": {"allow_compat_mode": False}}
    before = {name: os.environ.get(name) for name in wanted}
    with contextlib.ExitStack() as stack:
        for name, settings in wanted.items():
            file = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".json"))
            json.dump(settings, file)
            file.flush()
            os.environ[name] = file.name
        try:
            yield
        finally:
            for name, value in before.items():
                del os.environ[name]
                if value is not None:
                    os.environ[name] = value


def open_cucim(path: Path) -> Any:
    """A `CuImage`; imports cuCIM on first use, without its warnings on machines without a GPU.

    Raises:
        ImportError: If cuCIM is not installed or does not load here.
        RuntimeError, ValueError: If cuCIM cannot open the file.
    """
    global _is_loaded
    os.environ.setdefault("CUFILE_LOGFILE_PATH", os.devnull)  # else cuFile leaves a log in the current folder
    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet_library())
        if not _is_loaded:  # The plugin, and with it the second library, is loaded by the first file.
            stack.enter_context(_settings())
        from cucim.clara import CuImage

        image = CuImage(str(path))
        _is_loaded = True
        return image


class CucimBackend:
    """A slide in cuCIM."""

    name = "cucim"
    bounds_yx = (0, 0)  # None of the formats that it reads states any.

    def __init__(self, path: Path, pages: Sequence[Page]) -> None:
        """Open a file and decode one tile of every level, so that an unreadable one shows now.

        Raises:
            ImportError, RuntimeError, ValueError: If cuCIM is absent or cannot read the file.
        """
        self._image = open_cucim(path)
        resolutions = self._image.resolutions
        self._downsamples = [float(value) for value in resolutions["level_downsamples"]]
        self.level_sizes_yx = tuple((int(h), int(w)) for w, h in resolutions["level_dimensions"])
        tiles_yx = [(int(h), int(w)) for w, h in resolutions["level_tile_sizes"]]
        levels = [
            _page_of(size, tile, pages) for size, tile in zip(self.level_sizes_yx, tiles_yx, strict=True)
        ]
        self._guard = TileGuard(path, levels)
        self._opening = object()  # a file that is opened again may be another by then
        for level in range(len(levels)):
            if self._guard.is_written(level, (0, 0)):
                self._guard.check(level, (0, 0))
                self._decode(level, (0, 0))

    def read_regions(
        self, level: int, corners_yx: Sequence[_Place], size_yx: _Place
    ) -> Iterator[NDArray[np.uint8]]:
        """See `backends.Backend`."""
        self._guard.check_unchanged()
        together = max(1, _TOGETHER_BYTES // (3 * size_yx[0] * size_yx[1]))
        for first in range(0, len(corners_yx), together):
            yield from self._assemble(level, corners_yx[first : first + together], size_yx)

    def _assemble(self, level: int, corners_yx: Sequence[_Place], size_yx: _Place) -> list[NDArray[np.uint8]]:
        """Regions, each tile under them decoded once at most."""
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
        """Tiles with their rows and columns: first those that are held."""
        cache, missing = tile_cache(), []
        for place in places:
            tile = cache.get((self._opening, level, place))
            if tile is not None:
                yield place, tile
            elif self._guard.is_written(level, place):
                missing.append(place)
            else:  # cuCIM leaves it black in most files
                size_yx = self._guard.field(level, place)[1]
                yield place, np.broadcast_to(np.uint8(WHITE), (*size_yx, 3))
        for place, tile in zip(missing, self._decode_tiles(level, missing), strict=True):
            cache.put((self._opening, level, place), tile)
            yield place, tile

    def _decode_tiles(self, level: int, places: Sequence[_Place]) -> Iterator[NDArray[np.uint8]]:
        """Tiles in the order given, each checked before it is decoded."""
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
        for place in places[done:]:  # what it was about shows when a single thread decodes
            yield self._decode(level, place)
        if complaint:
            print(complaint, file=sys.stderr)

    def _decode_quietly(self, level: int, places: Sequence[_Place]) -> tuple[list[NDArray[np.uint8]], str]:
        """Tiles, or what the decoder, or that of another thread, complained about meanwhile."""
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
        """A tile, decoded by this thread alone; a complaint that does not come again was not about it."""
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
        """The part of a tile that lies in the level, and what the decoder printed meanwhile."""
        (top, left), (height, width) = self._guard.field(level, place)
        # cuCIM divides by the downsample and drops the fraction: the middle of the pixel is safe from that.
        downsample = self._downsamples[level]
        where = (int((left + 0.5) * downsample), int((top + 0.5) * downsample))
        with Complaints() as complaints:
            pixels = np.asarray(self._image.read_region(where, (width, height), level))
        if pixels.shape != (height, width, 3):
            raise InputError(f"level {level} has {pixels.shape[-1]} channels, not 3")
        return pixels, complaints.text

    def close(self) -> None:
        """Close the file."""
        tile_cache().forget(self._opening)
        self._guard.close()
        self._image.close()


def _paste(tile: NDArray[np.uint8], corner_yx: _Place, region: NDArray[np.uint8]) -> None:
    """Copy the part of a tile that lies in a region; its corner is counted from the region's."""
    (top, left), (height, width) = corner_yx, tile.shape[:2]
    part = tile[max(0, -top) : region.shape[0] - top, max(0, -left) : region.shape[1] - left]
    region[max(0, top) : top + height, max(0, left) : left + width] = part


def _page_of(size_yx: tuple[int, int], tile_yx: tuple[int, int], pages: Sequence[Page]) -> Page:
    """The page that is a level of cuCIM's.

    Raises:
        InputError: If that cannot be determined, or cuCIM would not read it as it is meant.
    """
    same = [page for page in pages if page.is_tiled and page.size_yx == size_yx]
    if len(same) != 1 or same[0].tile_yx != tile_yx:
        raise InputError(f"{len(same)} tiled images of the file have {size_yx[1]} x {size_yx[0]} px, not one")
    why = _why_not_decoded(same[0])
    if why is not None:
        raise InputError(why)
    return same[0]
