"""Slides in OpenSlide, for formats that cuCIM does not read.

OpenSlide takes positions as (x, y) in level-0 pixels and shifts the image by the remaining fraction of a level pixel.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.errors import SlideError
from histo_monai.slides.resample import WHITE
from histo_monai.slides.tile_cache import MAX_BYTES
from histo_monai.utils.process.complaints import Complaints
from histo_monai.utils.process.threads import in_order

logger = logging.getLogger(__name__)

_MARGIN = 8
_MIX_STEPS = 128  # OpenSlide's painter mixes in steps of 1/128.


class OpenSlideBackend:
    """A slide in OpenSlide; regions follow `backends.Backend`."""

    name = "openslide"

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        """Open a file; `files` are all files of the slide (`utils.storage.slide_files`).

        Raises:
            openslide.OpenSlideError: OpenSlide cannot read the file.
        """
        import openslide

        self._path, self._files, self._openslide = path, files, openslide
        self._stamps = self._stamps_now()  # Before OpenSlide reads the files.
        with Complaints() as complaints:  # of GLib, on the terminal
            self._slide = self._open()
        if complaints.text:
            logger.debug("slide %s: %s", path, complaints.text)
        self._downsamples = self._slide.level_downsamples
        self.level_sizes_yx = tuple((h, w) for w, h in self._slide.level_dimensions)
        self.properties: dict[str, str] = {}
        for name in self._slide.properties:
            with contextlib.suppress(KeyError, UnicodeError):  # Names and values that are not text.
                self.properties[name] = self._slide.properties[name]
        self.bounds_yx = _bounds_corner(self.properties)

    def read_regions(
        self, level: int, corners_yx: Sequence[tuple[int, int]], size_yx: tuple[int, int]
    ) -> Iterator[NDArray[np.uint8]]:
        """Regions inside a level, in the given order."""
        if self._stamps_now() != self._stamps:
            raise SlideError(
                self._path, "was changed while it was open. Fix: stop all writing to it and start again."
            )
        yield from in_order(lambda corner: self._read(level, corner, size_yx), corners_yx)

    def _stamps_now(self) -> list[tuple[int, int] | None]:
        """Size and time of each file; OpenSlide opens files by name at each reading."""
        return [_stamp(file) for file in self._files]

    def _read(self, level: int, corner_yx: tuple[int, int], size_yx: tuple[int, int]) -> NDArray[np.uint8]:
        height, width = self.level_sizes_yx[level]
        downsample = self._downsamples[level]
        margin = 0 if downsample.is_integer() else _MARGIN  # where `_undo_shift` starts
        top, left = (max(0, corner - margin) for corner in corner_yx)
        bottom = min(height, corner_yx[0] + size_yx[0] + margin)
        right = min(width, corner_yx[1] + size_yx[1] + margin)
        y, x = round(top * downsample), round(left * downsample)
        try:
            with Complaints():
                image = self._read_region((x, y), level, (right - left, bottom - top))
        except self._openslide.OpenSlideError as error:
            place = f"level {level}, rows {top} to {bottom}, columns {left} to {right}"
            raise SlideError(
                self._path, f"damaged in {place} ({error}). Fix: copy or download it again."
            ) from error
        pixels = _on_white(np.asarray(image))
        for axis, late in enumerate((y / downsample - top, x / downsample - left)):
            pixels = _undo_shift(pixels, late, axis)
        y, x = corner_yx[0] - top, corner_yx[1] - left
        return pixels[y : y + size_yx[0], x : x + size_yx[1]]

    def _open(self) -> Any:
        slide = self._openslide.OpenSlide(str(self._path))
        slide.set_cache(_decoded_tiles(os.getpid()))
        return slide

    def _read_region(self, *place: Any) -> Any:
        try:
            return self._slide.read_region(*place)
        except self._openslide.OpenSlideError:
            # OpenSlide repeats an error at every later call, also one of another thread.
            slide = self._open()
            image = slide.read_region(*place)
            self._slide = slide  # The threads that read from the former one keep it open.
            return image

    def close(self) -> None:
        """Close the file."""
        self._slide.close()


def openslide_format(path: Path) -> str | None:
    """OpenSlide's name for the format of a file, or None."""
    import openslide

    with Complaints():
        return openslide.OpenSlide.detect_format(str(path))


@functools.cache
def _decoded_tiles(process: int) -> Any:
    """OpenSlide's cache for all slides of a process; by default, each open slide takes 32 MiB of its own.

    Args:
        process: number of the process; a fork makes a cache of its own.
    """
    import openslide

    return openslide.OpenSlideCache(MAX_BYTES)


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:  # A deleted file differs from its old stamp.
        return None
    return status.st_size, status.st_mtime_ns


def _bounds_corner(properties: Mapping[str, str]) -> tuple[int, int]:
    """Corner of the bounds if all four are whole pixels, as QuPath requires; else the corner of the canvas."""
    try:
        x, y, _, _ = (int(properties[f"openslide.bounds-{name}"]) for name in ("x", "y", "width", "height"))
    except (KeyError, ValueError):
        return 0, 0
    return y, x


def _on_white(rgba: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """RGB pixels, white where there is no image; half-covered pixels at a shifted edge keep their color."""
    # OpenCV takes a third of the time of copies in NumPy.
    pixels, covered = cv2.cvtColor(rgba, cv2.COLOR_RGBA2RGB), cv2.extractChannel(rgba, 3)
    if covered.min() < 128:
        pixels[covered < 128] = WHITE
    return np.asarray(pixels, np.uint8)


def _undo_shift(pixels: NDArray[np.uint8], late_px: float, axis: int) -> NDArray[np.uint8]:
    """A level's own pixels, restored from pixels that OpenSlide shifted by a fraction.

    Level-0 positions are whole numbers. On a level with a fractional downsample (1.9999), OpenSlide begins up to a
    quarter of a pixel off and mixes neighbors: y[n] = (1 - f) x[n] + f x[n + 1]. With f below one half, a recursive
    filter solves this for x exactly.
    """
    fraction = round(abs(late_px) * _MIX_STEPS) / _MIX_STEPS
    if fraction == 0:
        return pixels
    along = cv2.transpose(pixels) if axis else pixels
    mixed = along.reshape(len(along), -1)
    solved = np.empty(mixed.shape, np.uint8)
    ratio = fraction / (1 - fraction)
    rows = range(len(mixed))[:: -1 if late_px > 0 else 1]
    carry = (-ratio * mixed[rows[0]].astype(np.float32)).astype(np.float64)
    row = np.empty_like(carry)
    # Row by row, in a core's cache: SciPy's filter takes six times as long.
    for number in rows:
        np.multiply(mixed[number], 1 / (1 - fraction), out=row)
        row += carry
        np.multiply(row, -ratio, out=carry)
        np.rint(row, out=row)
        np.maximum(row, 0, out=row)
        np.minimum(row, 255, out=row)
        solved[number] = row
    as_before = solved.reshape(along.shape)
    return np.asarray(cv2.transpose(as_before) if axis else as_before, np.uint8)
