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
        self._path, self.levels = path, levels
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

    def check_unchanged(self) -> None:
        """Check the file's size and time.

        Raises:
            SlideError: If they have changed since it was opened.
        """
        if self._stamp_now() != self._stamp:
            raise SlideError(
                self._path, "was changed while it was open; let nothing write to it, and start again"
            )

    def under(self, level: int, corner_yx: _Place, size_yx: _Place) -> Iterator[_Place]:
        """Row and column of every tile under a region."""
        (top, left), (height, width) = corner_yx, self.levels[level].tile_yx
        columns = range(left // width, (left + size_yx[1] - 1) // width + 1)
        for row in range(top // height, (top + size_yx[0] - 1) // height + 1):
            for column in columns:
                yield row, column

    def field(self, level: int, place: _Place) -> tuple[_Place, _Place]:
        """Corner of a tile, and its size inside the level."""
        page = self.levels[level]
        top, left = place[0] * page.tile_yx[0], place[1] * page.tile_yx[1]
        size = (min(page.tile_yx[0], page.size_yx[0] - top), min(page.tile_yx[1], page.size_yx[1] - left))
        return (top, left), size

    def is_written(self, level: int, place: _Place) -> bool:
        """Whether a tile has bytes in the file; cuCIM gives black or nothing for one that was never written."""
        page = self.levels[level]
        return bool(page.counts[place[0] * page.grid_yx[1] + place[1]] > 0)

    def check(self, level: int, place: _Place) -> None:
        """Check a tile before it is decoded for the first time.

        Raises:
            SlideError: If it is damaged.
        """
        if not self._sound[level][place]:
            self._check_one(level, place)
            self._sound[level][place] = True

    def data(self, level: int, place: _Place) -> bytes:
        """The bytes of a tile, or as many of them as show that it is none."""
        page = self.levels[level]
        number = place[0] * page.grid_yx[1] + place[1]
        count = min(int(page.counts[number]), most_bytes(page) + 1)
        return os.pread(self._file.fileno(), count, int(page.offsets[number]))

    def damaged(self, level: int, place: _Place, why: object) -> SlideError:
        """The error of a tile."""
        what = f"the tile in row {place[0]}, column {place[1]} of level {level} is damaged"
        return SlideError(self._path, f"{what} ({why}); copy or download the file again")

    def _stamp_now(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def _check_one(self, level: int, place: _Place) -> None:
        page = self.levels[level]
        if not self.is_written(level, place):
            return
        data = self.data(level, place)
        if self._known_heads[level] and data.startswith(self._known_heads[level]):
            return
        try:
            self._known_heads[level] = data[: check_tile(page, data)]
        except NoTileError as error:
            raise self.damaged(level, place, error) from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
