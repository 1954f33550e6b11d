"""Slides in OpenSlide, for what cuCIM does not read.

OpenSlide takes positions as (x, y) in level-0 pixels and shifts the image by the fraction of a level pixel that
is left over.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.errors import SlideError
from histo_monai.slides.resample import WHITE
from histo_monai.utils.process.complaints import Complaints

logger = logging.getLogger(__name__)

_MARGIN = 8
_MIX_STEPS = 128  # OpenSlide's painter mixes in steps of 1/128.


class OpenSlideBackend:
    """A slide in OpenSlide."""

    name = "openslide"

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        """Open a file.

        Args:
            files: `utils.storage.slide_files` of it.

        Raises:
            openslide.OpenSlideError: If OpenSlide cannot read it.
        """
        import openslide

        self._path, self._files = path, files
        self._stamps = self._stamps_now()  # before OpenSlide reads them
        self._error = openslide.OpenSlideError
        with Complaints() as complaints:  # of GLib, on the terminal
            self._slide = openslide.OpenSlide(str(path))
        if complaints.text:
            logger.debug("slide %s: %s", path, complaints.text)
        self._downsamples = self._slide.level_downsamples
        self.level_sizes_yx = tuple((h, w) for w, h in self._slide.level_dimensions)
        self.properties: dict[str, str] = {}
        for name in self._slide.properties:
            with contextlib.suppress(KeyError, UnicodeError):  # Names and values that are no text.
                self.properties[name] = self._slide.properties[name]
        self.bounds_yx = _bounds_corner(self.properties)

    def read_regions(
        self, level: int, corners_yx: Sequence[tuple[int, int]], size_yx: tuple[int, int]
    ) -> Iterator[NDArray[np.uint8]]:
        """See `backends.Backend`."""
        if self._stamps_now() != self._stamps:
            raise SlideError(
                self._path, "was changed while it was open; let nothing write to it, and start again"
            )
        for corner in corners_yx:
            yield self._read(level, corner, size_yx)

    def _stamps_now(self) -> list[tuple[int, int] | None]:
        """Size and time of each file; OpenSlide opens them by name whenever it reads."""
        return [_stamp(file) for file in self._files]

    def _read(self, level: int, corner_yx: tuple[int, int], size_yx: tuple[int, int]) -> NDArray[np.uint8]:
        height, width = self.level_sizes_yx[level]
        downsample = self._downsamples[level]
        # With a margin, from which `_undo_shift` starts.
        top, left = (max(0, corner - _MARGIN) for corner in corner_yx)
        bottom = min(height, corner_yx[0] + size_yx[0] + _MARGIN)
        right = min(width, corner_yx[1] + size_yx[1] + _MARGIN)
        y, x = round(top * downsample), round(left * downsample)
        try:
            with Complaints():
                image = self._slide.read_region((x, y), level, (right - left, bottom - top))
        except self._error as error:
            self._reopen()
            place = f"level {level}, rows {top} to {bottom}, columns {left} to {right}"
            raise SlideError(
                self._path, f"damaged in {place} ({error}); copy or download it again"
            ) from error
        pixels = _on_white(np.asarray(image))
        for axis, late in enumerate((y / downsample - top, x / downsample - left)):
            pixels = _undo_shift(pixels, late, axis)
        y, x = corner_yx[0] - top, corner_yx[1] - left
        return pixels[y : y + size_yx[0], x : x + size_yx[1]]

    def _reopen(self) -> None:
        """After an error OpenSlide answers every call with that error; what is sound can still be read."""
        with contextlib.suppress(self._error):
            self._slide.close()
            self._slide = type(self._slide)(str(self._path))

    def close(self) -> None:
        """Close the file."""
        self._slide.close()


def openslide_format(path: Path) -> str | None:
    """What OpenSlide calls the format of a file, or None where it knows none."""
    import openslide

    with Complaints():
        return openslide.OpenSlide.detect_format(str(path))


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:  # gone, which differs from what was there
        return None
    return status.st_size, status.st_mtime_ns


def _bounds_corner(properties: Mapping[str, str]) -> tuple[int, int]:
    """Corner of the bounds where all four are stated in whole pixels, as QuPath asks for; else that of the canvas."""
    try:
        x, y, _, _ = (int(properties[f"openslide.bounds-{name}"]) for name in ("x", "y", "width", "height"))
    except (KeyError, ValueError):
        return 0, 0
    return y, x


def _on_white(rgba: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """White where there is no image. Half-covered pixels at the edge of a shifted image keep their color."""
    pixels = np.ascontiguousarray(rgba[..., :3])
    pixels[rgba[..., 3] < 128] = WHITE
    return pixels


def _undo_shift(pixels: NDArray[np.uint8], late_px: float, axis: int) -> NDArray[np.uint8]:
    """The level's own pixels out of ones that OpenSlide mixed to begin a fraction of a pixel late.

    Level-0 positions are whole numbers, so on a level whose downsample is not one (1.9999) OpenSlide begins up
    to a quarter of a pixel off and mixes each pixel with its neighbor: y[n] = (1 - f) x[n] + f x[n + 1]. With
    f below one half this is solved for x exactly, pixel after pixel.
    """
    fraction = round(abs(late_px) * _MIX_STEPS) / _MIX_STEPS
    if fraction == 0:
        return pixels
    from scipy.signal import lfilter

    along = np.moveaxis(pixels, axis, 0)
    mixed = (along[::-1] if late_px > 0 else along).astype(np.float32)
    ratio = fraction / (1 - fraction)
    solved, _ = lfilter([1 / (1 - fraction)], [1.0, ratio], mixed, axis=0, zi=-ratio * mixed[:1])
    solved = np.rint(solved).clip(0, 255).astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(solved[::-1] if late_px > 0 else solved, 0, axis))
