"""Small streaming writer of tiled TIFF, for tiles that are already encoded as JPEG.

tifffile requires imagecodecs for such files, without calling it. Data are written first and directories last, so a
slide of any size is written in one pass. TIFF 6.0, sections 2, 15
and 22 (with technical note 2); BigTIFF by its public design note.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import BinaryIO

_SHORT, _LONG, _RATIONAL, _ASCII, _LONG8 = 3, 4, 5, 2, 16
_CODES = {_SHORT: "H", _LONG: "I", _LONG8: "Q", _ASCII: "s"}

Entry = tuple[int, int, Sequence[int] | bytes]


@dataclass(frozen=True)
class Directory:
    """Content of a level's TIFF directory.

    Attributes:
        height, width: Pixels.
        tile_px: Side of a tile.
        per_cm: Resolution, pixels per cm.
        reduced: Whether it is a smaller version of another level.
        description: ImageDescription.
    """

    height: int
    width: int
    tile_px: int
    per_cm: float
    reduced: bool
    description: str | None


class TiffWriter:
    """Writer of levels, one after another, and of their directories on `close`.

    Args:
        file: Open for writing in binary, seekable.
        big: 64-bit offsets, for files that may pass 4 GiB.
    """

    def __init__(self, file: BinaryIO, big: bool) -> None:
        self._file, self._big = file, big
        self._directories: list[list[Entry]] = []
        file.write(struct.pack("<2sHHHQ", b"II", 43, 8, 0, 0) if big else struct.pack("<2sHI", b"II", 42, 0))

    def add_level(self, tiles: Iterable[bytes], directory: Directory) -> None:
        """Write tiles row by row: JPEG streams, YCbCr 4:2:0."""
        offsets, counts = [], []
        for tile in tiles:
            offsets.append(self._file.tell())
            counts.append(len(tile))
            self._file.write(tile)
        across, down = -(-directory.width // directory.tile_px), -(-directory.height // directory.tile_px)
        if len(offsets) != across * down:
            raise ValueError(f"expected {across * down} tiles for {directory}, not {len(offsets)}")
        resolution = Fraction(directory.per_cm).limit_denominator(100_000)
        ratio = (resolution.numerator, resolution.denominator)
        place = _LONG8 if self._big else _LONG
        entries: list[Entry] = [
            (254, _LONG, (int(directory.reduced),)),
            (256, _LONG, (directory.width,)),
            (257, _LONG, (directory.height,)),
            (258, _SHORT, (8, 8, 8)),
            (259, _SHORT, (7,)),
            (262, _SHORT, (6,)),
            (277, _SHORT, (3,)),
            (282, _RATIONAL, ratio),
            (283, _RATIONAL, ratio),
            (284, _SHORT, (1,)),
            (296, _SHORT, (3,)),
            (322, _LONG, (directory.tile_px,)),
            (323, _LONG, (directory.tile_px,)),
            (324, place, offsets),
            (325, place, counts),
            (530, _SHORT, (2, 2)),
        ]
        if directory.description is not None:
            entries.insert(6, (270, _ASCII, directory.description.encode("ascii") + b"\0"))
        self._directories.append(entries)

    def close(self) -> None:
        """Write and link the directories; the file itself stays open."""
        link = 8 if self._big else 4  # Bytes for the offset of the next directory.
        for entries in self._directories:
            start = self._aligned()
            self._patch(link, start)
            link = self._write_directory(entries, start)

    def _write_directory(self, entries: list[Entry], start: int) -> int:
        count, place, room = ("<Q", "Q", 8) if self._big else ("<H", "I", 4)
        head = struct.calcsize(count)
        body = start + head + len(entries) * (4 + 2 * room) + room
        table, extra = struct.pack(count, len(entries)), b""
        for tag, kind, values in entries:
            data, number = _encode(kind, values)
            table += struct.pack(f"<HH{place}", tag, kind, number)
            if len(data) <= room:
                table += data.ljust(room, b"\0")
            else:
                extra += b"\0" * (-(body + len(extra)) % 8)
                table += struct.pack(f"<{place}", body + len(extra))
                extra += data
        link = start + len(table)
        self._file.write(table + b"\0" * room + extra)
        return link

    def _aligned(self) -> int:
        self._file.write(b"\0" * (-self._file.tell() % 8))
        return self._file.tell()

    def _patch(self, at: int, value: int) -> None:
        end = self._file.tell()
        self._file.seek(at)
        self._file.write(struct.pack("<Q" if self._big else "<I", value))
        self._file.seek(end)


def _encode(kind: int, values: Sequence[int] | bytes) -> tuple[bytes, int]:
    if isinstance(values, bytes):
        return values, len(values)
    if kind == _RATIONAL:
        return struct.pack(f"<{len(values)}I", *values), len(values) // 2
    return struct.pack(f"<{len(values)}{_CODES[kind]}", *values), len(values)
