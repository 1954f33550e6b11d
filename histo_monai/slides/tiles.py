"""Is what lies where a tile should lie a tile? Checked once for each tile, just before it is decoded.

cuCIM reports a tile that does not decode on stderr alone and hands out whatever its buffer held. A file
cut off or zero-filled by an interrupted download still has sound tables, so the first and last bytes of every
tile are looked at before it is read (they are about to be read anyway: this costs microseconds). A tile that
looks wrong is given to OpenSlide, which raises where libjpeg complains, before it is called damaged. Damage
that leaves both ends of a tile in place is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.errors import SlideError
from histo_monai.slides.tiff import ADOBE_DEFLATE, DEFLATE, JPEG, JPEG2000, UNCOMPRESSED, Page

_END = b"\xff\xd9"
_STARTS = {JPEG: b"\xff\xd8", **dict.fromkeys(JPEG2000, b"\xff\x4f")}
_TAIL_BYTES = 16  # Some writers pad tiles by a few bytes after the end marker.


class TileGuard:
    """Checks the tiles of one open file."""

    def __init__(self, path: Path, levels: Sequence[Page | None]) -> None:
        self._path, self._levels = path, levels
        self._file = path.open("rb", buffering=0)
        self._sound = [np.zeros(page.grid_yx if page else (0, 0), bool) for page in levels]
        self._has_empty = [page is not None and bool((page.counts == 0).any()) for page in levels]

    def check(self, level: int, corner_yx: tuple[int, int], size_yx: tuple[int, int]) -> None:
        """Check the tiles under a region.

        Raises:
            SlideError: If one of them is damaged.
        """
        page = self._levels[level]
        if page is None:
            return
        rows, columns = self._under(page, corner_yx, size_yx)
        sound = self._sound[level][rows, columns]
        if sound.all():
            return
        for row, column in np.argwhere(~sound).tolist():
            row, column = row + rows.start, column + columns.start
            if not self._looks_sound(page, row * page.grid_yx[1] + column):
                self._ask_openslide(level, page, row, column)
        sound[:] = True

    def whiten(
        self, level: int, corner_yx: tuple[int, int], pixels: NDArray[np.uint8], white: int
    ) -> NDArray[np.uint8]:
        """Paint tiles that were never written white; cuCIM leaves them black in most files."""
        page = self._levels[level]
        if page is None or not self._has_empty[level]:
            return pixels
        rows, columns = self._under(page, corner_yx, (pixels.shape[0], pixels.shape[1]))
        empty = (page.counts[: page.grid_yx[0] * page.grid_yx[1]] == 0).reshape(page.grid_yx)[rows, columns]
        if not empty.any():
            return pixels
        pixels = pixels.copy()
        for row, column in np.argwhere(empty).tolist():
            top = (row + rows.start) * page.tile_yx[0] - corner_yx[0]
            left = (column + columns.start) * page.tile_yx[1] - corner_yx[1]
            bottom, right = top + page.tile_yx[0], left + page.tile_yx[1]
            pixels[max(top, 0) : bottom, max(left, 0) : right] = white
        return pixels

    def _under(self, page: Page, corner_yx: tuple[int, int], size_yx: tuple[int, int]) -> tuple[slice, slice]:
        rows, columns = (
            slice(corner // tile, (corner + size - 1) // tile + 1)
            for corner, size, tile in zip(corner_yx, size_yx, page.tile_yx, strict=True)
        )
        return rows, columns

    def _looks_sound(self, page: Page, number: int) -> bool:
        offset, count = int(page.offsets[number]), int(page.counts[number])
        if count == 0 or page.compression == UNCOMPRESSED:
            return True
        start = os.pread(self._file.fileno(), 2, offset)
        tail = os.pread(self._file.fileno(), min(count, _TAIL_BYTES), offset + max(0, count - _TAIL_BYTES))
        if page.compression in _STARTS:
            return start == _STARTS[page.compression] and _END in tail
        if page.compression in (DEFLATE, ADOBE_DEFLATE) and start[0] & 0x0F != 8:
            return False
        return any(tail[-4:])

    def _ask_openslide(self, level: int, page: Page, row: int, column: int) -> None:
        import openslide

        what = f"the tile in row {row}, column {column} of level {level} is damaged"
        try:
            with openslide.OpenSlide(str(self._path)) as slide:
                size_xy = (page.size_yx[1], page.size_yx[0])
                its_level = slide.level_dimensions.index(size_xy)
                downsample = slide.level_downsamples[its_level]
                corner_xy = (
                    int(column * page.tile_yx[1] * downsample),
                    int(row * page.tile_yx[0] * downsample),
                )
                slide.read_region(corner_xy, its_level, (page.tile_yx[1], page.tile_yx[0]))
        except (openslide.OpenSlideError, ValueError) as error:
            raise SlideError(self._path, f"{what} ({error}); copy or download the file again") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
