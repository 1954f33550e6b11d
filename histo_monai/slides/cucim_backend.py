"""Slides in cuCIM, region by region: as fast as its batches; never its cache of decoded tiles.

cuCIM takes positions as (x, y) in level-0 pixels and rounds them down to whole pixels of the level.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histo_monai.errors import InputError
from histo_monai.process.quiet import quiet_library
from histo_monai.process.threads import in_order
from histo_monai.slides.complaints import Complaints
from histo_monai.slides.errors import SlideError
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

    def __init__(self, path: Path, pages: Sequence[Page]) -> None:
        """Open a file and decode one pixel of every level, so that an unreadable one shows now.

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
        self._path = path
        for level in range(len(levels)):
            self._guard.check(level, (0, 0), (1, 1))
            self._decode(level, (0, 0), (1, 1))

    def read_regions(
        self, level: int, corners_yx: Sequence[tuple[int, int]], size_yx: tuple[int, int]
    ) -> Iterator[NDArray[np.uint8]]:
        """See `backends.Backend`."""
        self._guard.check_unchanged()
        for corner in corners_yx:
            self._guard.check(level, corner, size_yx)
        regions = in_order(lambda corner: self._decode_quietly(level, corner, size_yx), corners_yx)
        done, complaint = 0, ""
        for pixels, complaint in regions:
            if complaint:
                regions.close()
                break
            yield self._guard.whiten(level, corners_yx[done], pixels, WHITE)
            done += 1
        for corner in corners_yx[done:]:  # what it was about shows when a single thread decodes
            yield self._guard.whiten(level, corner, self._decode(level, corner, size_yx), WHITE)
        if complaint:
            print(complaint, file=sys.stderr)

    def _decode_quietly(
        self, level: int, corner_yx: tuple[int, int], size_yx: tuple[int, int]
    ) -> tuple[NDArray[np.uint8], str]:
        """A region, and what the decoder, or that of another thread, complained about meanwhile."""
        try:
            return self._decode_plainly(level, corner_yx, size_yx)
        except _ERRORS as error:
            return np.empty((0, 0, 3), np.uint8), str(error) or type(error).__name__

    def _decode(self, level: int, corner_yx: tuple[int, int], size_yx: tuple[int, int]) -> NDArray[np.uint8]:
        try:
            pixels, complaint = self._decode_plainly(level, corner_yx, size_yx)
        except _ERRORS as error:
            raise self._located(level, corner_yx, size_yx, str(error)) from error
        if complaint:
            self._blame(level, corner_yx, size_yx, complaint)
        return pixels

    def _decode_plainly(
        self, level: int, corner_yx: tuple[int, int], size_yx: tuple[int, int]
    ) -> tuple[NDArray[np.uint8], str]:
        """One region, and what the decoder printed meanwhile."""
        with Complaints() as complaints:
            where = self._location(level, corner_yx)
            pixels = np.asarray(self._image.read_region(where, (size_yx[1], size_yx[0]), level))
        if pixels.shape != (*size_yx, 3):
            raise InputError(f"level {level} has {pixels.shape[-1]} channels, not 3")
        return pixels, complaints.text

    def _blame(
        self, level: int, corner_yx: tuple[int, int], size_yx: tuple[int, int], complaint: str
    ) -> None:
        """Raise a complaint as an error with slide, level and tile; pass on what was not about these tiles."""
        error = self._find_damage(level, corner_yx, size_yx)
        if error is not None:
            raise error
        print(complaint, file=sys.stderr)

    def _located(
        self, level: int, corner_yx: tuple[int, int], size_yx: tuple[int, int], why: str
    ) -> SlideError:
        """What cuCIM raised, as an error with slide, level and tile."""
        error = self._find_damage(level, corner_yx, size_yx)
        return error or SlideError(self._path, f"level {level} cannot be decoded ({why}); copy it again")

    def _find_damage(
        self, level: int, corner_yx: tuple[int, int], size_yx: tuple[int, int]
    ) -> SlideError | None:
        """Decode the tiles under a region one by one: the error of the first that is complained about."""
        for place, tile_corner, tile_size in self._guard.written_under(level, corner_yx, size_yx):
            try:
                _, why = self._decode_plainly(level, tile_corner, tile_size)
            except _ERRORS as error:
                why = str(error)
            if why:
                return self._guard.damaged(level, place, why)
        return None

    def _location(self, level: int, corner_yx: tuple[int, int]) -> tuple[int, int]:
        # cuCIM divides by the downsample and drops the fraction: the middle of the pixel is safe from that.
        downsample = self._downsamples[level]
        y, x = (int((value + 0.5) * downsample) for value in corner_yx)
        return x, y

    def close(self) -> None:
        """Close the file."""
        self._guard.close()
        self._image.close()


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
