"""Check each tile once, before it is first decoded.

cuCIM only prints a message for a tile that does not decode, and returns its buffer's old content. A tile whose header
states another size ends the process. So this module checks a tile's bytes before decoding (microseconds) and the file's
size and time before every reading. `complaints` catches damage that only the decoder notices.
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
            SlideError: The common JPEG tables are damaged.
        """
        self._path, self.levels = path, levels
        for level, page in enumerate(levels):
            if page.jpeg_tables:
                try:
                    check_jpeg_tables(page.jpeg_tables)
                except NoTileError as error:
                    what = f"the JPEG tables of level {level} are damaged ({error})"
                    raise SlideError(path, f"{what}. Fix: copy or download the file again.") from None
        self._file = path.open("rb", buffering=0)
        self._stamp = self._stamp_now()
        self._sound = [np.zeros(page.grid_yx, bool) for page in levels]
        self._known_heads = [b""] * len(levels)  # Most writers begin all tiles with equal bytes.

    def check_unchanged(self) -> None:
        """Check the file's size and time.

        Raises:
            SlideError: They have changed since the file was opened.
        """
        if self._stamp_now() != self._stamp:
            raise SlideError(
                self._path, "was changed while it was open. Fix: stop all writing to it and start again."
            )

    def under(self, level: int, corner_yx: _Place, size_yx: _Place) -> Iterator[_Place]:
        """Row and column of every tile under a region."""
        (top, left), (height, width) = corner_yx, self.levels[level].tile_yx
        columns = range(left // width, (left + size_yx[1] - 1) // width + 1)
        for row in range(top // height, (top + size_yx[0] - 1) // height + 1):
            for column in columns:
                yield row, column

    def field(self, level: int, place: _Place) -> tuple[_Place, _Place]:
        """Corner of a tile, and the size of its part inside the level."""
        page = self.levels[level]
        top, left = place[0] * page.tile_yx[0], place[1] * page.tile_yx[1]
        size = (min(page.tile_yx[0], page.size_yx[0] - top), min(page.tile_yx[1], page.size_yx[1] - left))
        return (top, left), size

    def is_written(self, level: int, place: _Place) -> bool:
        """Whether the file holds bytes of a tile; cuCIM returns black or nothing for an unwritten tile."""
        page = self.levels[level]
        return bool(page.counts[place[0] * page.grid_yx[1] + place[1]] > 0)

    def check(self, level: int, place: _Place) -> None:
        """Check a tile before it is first decoded.

        Raises:
            SlideError: The tile is damaged.
        """
        if not self._sound[level][place]:
            self.checked(level, place)

    def data(self, level: int, place: _Place) -> bytes:
        """The bytes of a tile, cut where they exceed any valid tile."""
        page = self.levels[level]
        number = place[0] * page.grid_yx[1] + place[1]
        count = min(int(page.counts[number]), most_bytes(page) + 1)
        return os.pread(self._file.fileno(), count, int(page.offsets[number]))

    def checked(self, level: int, place: _Place) -> bytes:
        """The bytes of a tile, checked; empty for a tile that the file does not hold.

        Raises:
            SlideError: The tile is damaged.
        """
        data = self.data(level, place) if self.is_written(level, place) else b""
        if not self._sound[level][place]:
            if data:
                self._check_one(level, place, data)
            self._sound[level][place] = True
        return data

    def damaged(self, level: int, place: _Place, why: object) -> SlideError:
        """The error for a damaged tile."""
        what = f"the tile in row {place[0]}, column {place[1]} of level {level} is damaged"
        return SlideError(self._path, f"{what} ({why}). Fix: copy or download the file again.")

    def _stamp_now(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def _check_one(self, level: int, place: _Place, data: bytes) -> None:
        page = self.levels[level]
        if self._known_heads[level] and data.startswith(self._known_heads[level]):
            return
        try:
            self._known_heads[level] = data[: check_tile(page, data)]
        except NoTileError as error:
            raise self.damaged(level, place, error) from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
