"""Slides in cuCIM, tile by tile, with this package's tile cache instead of cuCIM's.

cuCIM takes positions as (x, y) in level-0 pixels and rounds them down to whole pixels of the level.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.tiff import JPEG, JPEG2000, LZW, Page, TiffBackend, why_not_decoded, why_not_pillow
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.complaints import Complaints
from histo_monai.utils.process.quiet import quiet_library

SUFFIXES = (".svs", ".tif", ".tiff")
"""File suffixes that cuCIM reads."""

_REVERSED = 2

_Place = tuple[int, int]

_is_loaded = False


def why_not_cucim(path: Path, pages: Sequence[Page]) -> str | None:
    """The reason not to open a file with cuCIM, or None; the first page is level 0."""
    if path.suffix.lower() not in SUFFIXES or not pages:
        return f"it reads tiled TIFF ({', '.join(SUFFIXES)}) only"
    for page in pages:
        # cuCIM asks libtiff for every image's predictor; its libtiff ends the process for any but LZW's.
        if page.predictor is not None and page.compression != LZW:
            return f"it does not open files with a predictor for TIFF compression {page.compression}"
    return _why_not_page(pages[0])


def _why_not_page(page: Page) -> str | None:
    """The reason why cuCIM would misread an image, or None."""
    if page.fill_order == _REVERSED and page.compression not in (JPEG, *JPEG2000):
        return "it does not undo a reversed order of bits (FillOrder 2)"
    return why_not_decoded(page)


_GPUS = ("/dev/nvidiactl", "/dev/dxg")
"""Device files of GPU drivers; the second is for Windows Subsystem for Linux."""


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """Settings that cuCIM and its libraries read when they load, in place of the user's files.

    The cache is off, because it confuses tiles of different slides: of 32 slides read in one process, two returned
    tiles of others (cuCIM 26.10; none without the cache).

    cuFile is off without a GPU: the version of torch 2.15 (1.17) searches for one for minutes at full load; the version
    of torch 2.11 (1.15) did not.
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
    """A `CuImage`; imports cuCIM on first use, without its warnings on machines without a GPU."""
    global _is_loaded
    os.environ.setdefault("CUFILE_LOGFILE_PATH", os.devnull)  # else cuFile leaves a log in the current folder
    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet_library())
        if not _is_loaded:  # The first file loads the plugin and its library.
            stack.enter_context(_settings())
        from cucim.clara import CuImage

        image = CuImage(str(path))
        _is_loaded = True
        return image


class CucimBackend(TiffBackend):
    """A slide in cuCIM. Pillow decodes levels that cuCIM does not list, such as levels in SubIFDs."""

    name = "cucim"

    def __init__(self, path: Path, levels: Sequence[Page]) -> None:
        """Open a file and decode one tile of every level, to report an unreadable level early.

        Args:
            levels: The pages to read, level 0 first.

        Raises:
            ImportError, RuntimeError, ValueError: cuCIM is absent or cannot read the file.
        """
        self._image = open_cucim(path)
        resolutions = self._image.resolutions
        self._downsamples = [float(value) for value in resolutions["level_downsamples"]]
        sizes_yx = [(int(h), int(w)) for w, h in resolutions["level_dimensions"]]
        tiles_yx = [(int(h), int(w)) for w, h in resolutions["level_tile_sizes"]]
        # Positions refer to cuCIM's own level 0, which is the macro where the macro is wider than the slide.
        is_same = sizes_yx[0][0] <= levels[0].size_yx[0] and sizes_yx[0][1] <= levels[0].size_yx[1]
        self._numbers = [_number_of(page, sizes_yx, tiles_yx) if is_same else None for page in levels]
        for page, number in zip(levels, self._numbers, strict=True):
            if number is None and (page is levels[0] or why_not_pillow(page)):
                height, width = page.size_yx
                raise InputError(f"it does not find the image of {width} x {height} px")
        super().__init__(
            path,
            [
                page if number is None else dataclasses.replace(page, size_yx=sizes_yx[number])
                for page, number in zip(levels, self._numbers, strict=True)
            ],
        )

    def _decode_plainly(self, level: int, place: _Place) -> tuple[NDArray[np.uint8], str]:
        """The part of a tile inside the level, and the decoder's printed complaints."""
        number = self._numbers[level]
        if number is None:
            return super()._decode_plainly(level, place)
        (top, left), (height, width) = self._guard.field(level, place)
        # cuCIM divides by the downsample and drops the fraction; the pixel's middle survives both.
        downsample = self._downsamples[number]
        where = (int((left + 0.5) * downsample), int((top + 0.5) * downsample))
        with Complaints() as complaints:
            pixels = np.asarray(self._image.read_region(where, (width, height), number))
        if pixels.shape != (height, width, 3):
            raise InputError(f"level {level} has {pixels.shape[-1]} channels, not 3")
        return pixels, complaints.text

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._image.close()


def _number_of(page: Page, sizes_yx: Sequence[_Place], tiles_yx: Sequence[_Place]) -> int | None:
    """A page's number among cuCIM's levels; None where no level or several levels match.

    cuCIM states the levels of Philips without the padding to whole tiles.
    """
    if _why_not_page(page):
        return None
    near = [
        number
        for number, (size_yx, tile_yx) in enumerate(zip(sizes_yx, tiles_yx, strict=True))
        if tile_yx == page.tile_yx
        and all(0 <= page.size_yx[axis] - size_yx[axis] < tile_yx[axis] for axis in (0, 1))
    ]
    exact = [number for number in near if sizes_yx[number] == page.size_yx]
    numbers = exact or near
    return numbers[0] if len(numbers) == 1 else None
