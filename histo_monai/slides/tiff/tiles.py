"""Is what lies where a tile should lie a tile? Checked once for each tile, just before it is decoded.

cuCIM reports a tile that does not decode on the terminal alone and hands out whatever its buffer held; one whose
header states another size than the TIFF ends the process. So a tile's bytes are looked at before they are decoded
for the first time (they are about to be read anyway: this costs microseconds), and the file's size and time before
every reading. What only the decoder can notice is left to `complaints`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.errors import SlideError
from histo_monai.slides.tiff.frames import NoTileError, check_jpeg_tables, check_tile, most_bytes
from histo_monai.slides.tiff.tables import Page

_Place = tuple[int, int]


class TileGuard:
    """Checks the tiles of one open file."""

    def __init__(self, path: Path, levels: Sequence[Page]) -> None:
        """Open a file a second time.

        Raises:
            SlideError: If the tables that its JPEG tiles share are damaged.
        """
        self._path, self._levels = path, levels
        for level, page in enumerate(levels):
            if page.jpeg_tables:
                try:
                    check_jpeg_tables(page.jpeg_tables)
                except NoTileError as error:
                    what = f"the JPEG tables of level {level} are damaged ({error})"
                    raise SlideError(path, f"{what}; copy or download the file again") from None
        self._file = path.open("rb", buffering=0)
        self._stamp = self._stamp_now()
        self._sound = [np.zeros(page.grid_yx, bool) for page in levels]
        self._known_heads = [b""] * len(levels)  # Most writers begin all tiles alike.
        self._has_empty = [bool((page.counts == 0).any()) for page in levels]

    def check_unchanged(self) -> None:
        """Check the file's size and time.

        Raises:
            SlideError: If they have changed since it was opened.
        """
        if self._stamp_now() != self._stamp:
            raise SlideError(
                self._path, "was changed while it was open; let nothing write to it, and start again"
            )

    def check(self, level: int, corner_yx: tuple[int, int], size_yx: tuple[int, int]) -> None:
        """Check the tiles under a region.

        Raises:
            SlideError: If one of them is damaged.
        """
        page = self._levels[level]
        rows, columns = _under(page, corner_yx, size_yx)
        sound = self._sound[level][rows, columns]
        if sound.all():
            return
        for row, column in np.argwhere(~sound).tolist():
            self._check_one(level, (row + rows.start, column + columns.start))
        sound[:] = True

    def written_under(
        self, level: int, corner_yx: tuple[int, int], size_yx: tuple[int, int]
    ) -> Iterator[tuple[_Place, _Place, _Place]]:
        """Row and column of every written tile under a region, with its corner and its size inside the level."""
        page = self._levels[level]
        rows, columns = _under(page, corner_yx, size_yx)
        for row in range(rows.start, rows.stop):
            for column in range(columns.start, columns.stop):
                if page.counts[row * page.grid_yx[1] + column] > 0:
                    top, left = row * page.tile_yx[0], column * page.tile_yx[1]
                    height, width = min(page.tile_yx[0], page.size_yx[0] - top), page.size_yx[1] - left
                    yield (row, column), (top, left), (height, min(page.tile_yx[1], width))

    def damaged(self, level: int, place: _Place, why: object) -> SlideError:
        """The error of a tile."""
        what = f"the tile in row {place[0]}, column {place[1]} of level {level} is damaged"
        return SlideError(self._path, f"{what} ({why}); copy or download the file again")

    def whiten(
        self, level: int, corner_yx: tuple[int, int], pixels: NDArray[np.uint8], white: int
    ) -> NDArray[np.uint8]:
        """Paint tiles that were never written white; cuCIM leaves them black in most files."""
        page = self._levels[level]
        if not self._has_empty[level]:
            return pixels
        rows, columns = _under(page, corner_yx, (pixels.shape[0], pixels.shape[1]))
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

    def _stamp_now(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def _check_one(self, level: int, place: _Place) -> None:
        page = self._levels[level]
        number = place[0] * page.grid_yx[1] + place[1]
        offset, count = int(page.offsets[number]), int(page.counts[number])
        if count == 0:
            return
        data = os.pread(self._file.fileno(), min(count, most_bytes(page) + 1), offset)
        if self._known_heads[level] and data.startswith(self._known_heads[level]):
            return
        try:
            self._known_heads[level] = data[: check_tile(page, data)]
        except NoTileError as error:
            raise self.damaged(level, place, error) from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _under(page: Page, corner_yx: _Place, size_yx: _Place) -> tuple[slice, slice]:
    """Rows and columns of the tiles under a region."""
    (top, left), (height, width), (tile_height, tile_width) = corner_yx, size_yx, page.tile_yx
    rows = slice(top // tile_height, (top + height - 1) // tile_height + 1)
    return rows, slice(left // tile_width, (left + width - 1) // tile_width + 1)
