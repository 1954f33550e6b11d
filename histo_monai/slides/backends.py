"""The two libraries that decode slides, behind one interface in level pixels, order y, x.

cuCIM takes positions as (x, y) in level-0 pixels and rounds them down to whole pixels of the level; OpenSlide
takes the same and shifts by the fraction that is left. Both conversions happen here and nowhere else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.errors import SlideError
from histo_monai.slides.tiff import ADOBE_DEFLATE, DEFLATE, JPEG, JPEG2000, UNCOMPRESSED, Page

logger = logging.getLogger(__name__)

CACHE_MIB = 128
"""Decoded tiles kept per process, MiB: concentric and neighbouring patches share tiles."""

_BATCH_BYTES = 16 * 2**20
_CUCIM_SUFFIXES = (".svs", ".tif", ".tiff")
_CUCIM_CODECS = {UNCOMPRESSED, 5, JPEG, DEFLATE, ADOBE_DEFLATE, *JPEG2000}
_cache_pid = -1


class Backend(Protocol):
    """One open file in one library."""

    name: str
    level_sizes_yx: tuple[tuple[int, int], ...]

    def read_regions(
        self, level: int, corners_yx: Sequence[tuple[int, int]], size_yx: tuple[int, int]
    ) -> Iterator[tuple[Any, tuple[float, float]]]:
        """Regions inside a level, in the order given.

        Yields:
            Pixels, shape (*size_yx, 3), uint8; and by how many level pixels (y, x) they begin later than asked.
        """

    def close(self) -> None:
        """Close the file."""


@contextlib.contextmanager
def quiet_library() -> Iterator[None]:
    """Keep what C libraries print away from the terminal and pass it to the log at DEBUG instead."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    saved = [(number, os.dup(number)) for number in (1, 2)]
    with tempfile.TemporaryFile() as sink:
        try:
            for number, _ in saved:
                os.dup2(sink.fileno(), number)
            yield
        finally:
            for number, copy in saved:
                os.dup2(copy, number)
                os.close(copy)
            sink.seek(0)
            for line in sink.read().decode("utf-8", "replace").splitlines():
                logger.debug("%s", line)


def why_not_cucim(path: Path, pages: list[Page]) -> str | None:
    """Why cuCIM is not asked to read a file, or None."""
    if path.suffix.lower() not in _CUCIM_SUFFIXES or not pages:
        return f"it reads tiled TIFF ({', '.join(_CUCIM_SUFFIXES)}) only"
    first = pages[0]
    if not first.is_tiled:
        return "the image is not tiled"
    if first.num_channels != 3 or first.bits != 8:
        return f"the image has {first.num_channels} channels of {first.bits} bits, not 3 of 8"
    if first.compression not in _CUCIM_CODECS:
        return f"it does not decode TIFF compression {first.compression}"
    return None


def import_cucim() -> Any:
    """The class ``CuImage``, imported on first use, without the library's warnings on machines without a GPU.

    Raises:
        ImportError: If cuCIM is not installed or does not load here.
    """
    if "cucim" not in sys.modules:
        with quiet_library():
            import cucim  # noqa: F401
    from cucim import CuImage

    return CuImage


class CucimBackend:
    """A slide in cuCIM."""

    name = "cucim"

    def __init__(self, path: Path, device: str = "cpu", num_threads: int = 1) -> None:
        """Open a file and decode one pixel of every level, so that an unreadable one shows now.

        Raises:
            ImportError, RuntimeError, ValueError: If cuCIM is absent or cannot read the file.
        """
        global _cache_pid
        image_class = import_cucim()
        with quiet_library():
            if (
                _cache_pid != os.getpid()
            ):  # The cache and its locks must be this process's own, not the parent's.
                image_class.cache("per_process", memory_capacity=CACHE_MIB)
                _cache_pid = os.getpid()
            self._image = image_class(str(path))
            resolutions = self._image.resolutions
            self._downsamples = [float(value) for value in resolutions["level_downsamples"]]
            self.level_sizes_yx = tuple((int(h), int(w)) for w, h in resolutions["level_dimensions"])
            for level in range(len(self.level_sizes_yx)):
                np.asarray(self._image.read_region((0, 0), (1, 1), level))
        self._device, self._num_threads = device, num_threads

    def read_regions(
        self, level: int, corners_yx: Sequence[tuple[int, int]], size_yx: tuple[int, int]
    ) -> Iterator[tuple[Any, tuple[float, float]]]:
        """See `Backend`; on a GPU the pixels are CuPy arrays."""
        locations = [self._location(level, corner) for corner in corners_yx]
        size_xy = (size_yx[1], size_yx[0])
        if len(locations) == 1:
            yield (
                self._array(self._image.read_region(locations[0], size_xy, level, device=self._device)),
                (0.0, 0.0),
            )
            return
        flat = [value for location in locations for value in location]
        batch_size = max(1, min(len(locations), 16, _BATCH_BYTES // (size_yx[0] * size_yx[1] * 3)))
        batches = self._image.read_region(
            flat, size_xy, level, num_workers=self._num_threads, batch_size=batch_size, device=self._device
        )
        for batch in batches:
            array = self._array(batch)
            for region in array.reshape(-1, *size_yx, array.shape[-1]):
                yield region, (0.0, 0.0)

    def _location(self, level: int, corner_yx: tuple[int, int]) -> tuple[int, int]:
        # cuCIM divides by the downsample and drops the fraction: the middle of the pixel is safe from rounding.
        downsample = self._downsamples[level]
        y, x = (int((value + 0.5) * downsample) for value in corner_yx)
        return x, y

    def _array(self, image: Any) -> Any:
        if self._device == "cpu":
            return np.asarray(image)
        import cupy

        return cupy.asarray(image)

    def close(self) -> None:
        """Close the file."""
        self._image.close()


class OpenSlideBackend:
    """A slide in OpenSlide."""

    name = "openslide"

    def __init__(self, path: Path) -> None:
        """Open a file.

        Raises:
            openslide.OpenSlideError: If OpenSlide cannot read it.
        """
        import openslide

        self._path = path
        self._error = openslide.OpenSlideError
        self._slide = openslide.OpenSlide(str(path))
        self._downsamples = self._slide.level_downsamples
        self.level_sizes_yx = tuple((h, w) for w, h in self._slide.level_dimensions)
        self.properties: Mapping[str, str] = dict(self._slide.properties)

    def read_regions(
        self, level: int, corners_yx: Sequence[tuple[int, int]], size_yx: tuple[int, int]
    ) -> Iterator[tuple[NDArray[np.uint8], tuple[float, float]]]:
        """See `Backend`."""
        for corner in corners_yx:
            location = tuple(round(value * self._downsamples[level]) for value in corner)
            late_y, late_x = (
                position / self._downsamples[level] - value
                for position, value in zip(location, corner, strict=True)
            )
            try:
                image = self._slide.read_region((location[1], location[0]), level, (size_yx[1], size_yx[0]))
            except self._error as error:
                raise SlideError(self._path, f"damaged ({error}); copy or download it again") from error
            yield _on_white(np.asarray(image)), (late_y, late_x)

    def close(self) -> None:
        """Close the file."""
        self._slide.close()


def _on_white(rgba: NDArray[np.uint8]) -> NDArray[np.uint8]:
    alpha = rgba[..., 3]
    if alpha.min() == 255:
        return np.ascontiguousarray(rgba[..., :3])
    mixed = rgba[..., :3].astype(np.uint16) * alpha[..., None] + 255 * (
        255 - alpha[..., None].astype(np.uint16)
    )
    return ((mixed + 127) // 255).astype(np.uint8)
