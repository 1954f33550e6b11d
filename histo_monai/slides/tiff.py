"""The tables of a tiled TIFF: which pages are levels, where every tile lies, and whether the file holds them.

cuCIM prints to stderr and hands out stale pixels where a tile is damaged, and drops levels whose directory is
cut off. So the tables are read here first, and a file that promises bytes it does not have is refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.errors import SlideError

UNCOMPRESSED, LZW, JPEG, ADOBE_DEFLATE, DEFLATE = 1, 5, 7, 8, 32946
JPEG2000 = (33003, 33005)

_SUBFILE, _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _DESCRIPTION, _CHANNELS = 254, 256, 257, 258, 259, 270, 277
_X_RESOLUTION, _Y_RESOLUTION, _RESOLUTION_UNIT = 282, 283, 296
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_COUNTS, _STRIP_OFFSETS, _STRIP_COUNTS = (
    322,
    323,
    324,
    325,
    273,
    279,
)
_TYPES = {
    1: "u1",
    2: "S1",
    3: "u2",
    4: "u4",
    5: "u4",
    6: "i1",
    7: "V1",
    8: "i2",
    9: "i4",
    10: "i4",
    11: "f4",
    12: "f8",
}
_TYPES |= {13: "u4", 16: "u8", 17: "i8", 18: "u8"}
_RATIONALS = (5, 10)

TagValue = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Page:
    """One image of a TIFF.

    Attributes:
        size_yx: Height and width.
        tile_yx: Height and width of its tiles; (0, 0) where it is stored in strips.
        compression: TIFF's number of the codec.
        num_channels: Samples per pixel.
        bits: Bits per sample.
        offsets: Where each tile or strip begins in the file, int64.
        counts: How many bytes each takes; 0 is a tile that was never written.
        description: ImageDescription, where the vendors keep their metadata.
        resolution_yx: Pixels per resolution unit, or None.
        resolution_unit: 1 none, 2 inch, 3 centimeter; TIFF's default is 2, but only where the tag is there.
    """

    size_yx: tuple[int, int]
    tile_yx: tuple[int, int]
    compression: int
    num_channels: int
    bits: int
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]
    description: str = ""
    resolution_yx: tuple[float, float] | None = None
    resolution_unit: int | None = None

    @property
    def is_tiled(self) -> bool:
        """Whether the page is stored in tiles."""
        return self.tile_yx[0] > 0 and self.tile_yx[1] > 0

    @property
    def grid_yx(self) -> tuple[int, int]:
        """Number of tiles downwards and across."""
        return (-(-self.size_yx[0] // self.tile_yx[0]), -(-self.size_yx[1] // self.tile_yx[1]))


def read_pages(path: Path) -> list[Page]:
    """All pages of a TIFF or BigTIFF, with the place of every tile checked against the size of the file.

    Raises:
        SlideError: If the file is cut off: a directory, a table or a tile ends beyond its last byte.
    """
    file_size = path.stat().st_size
    with path.open("rb") as file:
        reader = _Directory(path, file, file_size)
        pages: list[Page] = []
        offset = reader.first
        seen: set[int] = set()
        while offset:
            if offset in seen:
                raise SlideError(path, "damaged: its image directories run in a circle; copy it again")
            seen.add(offset)
            tags, offset = reader.read(offset)
            pages.append(_make_page(tags))
    for number, page in enumerate(pages):
        num_listed = min(len(page.offsets), len(page.counts))
        is_written = page.counts[:num_listed] > 0
        ends = (page.offsets[:num_listed] + page.counts[:num_listed])[is_written]
        if len(ends) and int(ends.max()) > file_size:
            raise _truncated(path, file_size, int(ends.max()), f"a tile of image {number}")
        num_tiles = page.grid_yx[0] * page.grid_yx[1] if page.is_tiled else 0
        if num_tiles > num_listed:
            raise SlideError(
                path,
                f"image {number} lists {num_listed} of its {num_tiles} tiles; copy the file again",
            )
    return pages


def is_tiff(path: Path) -> bool:
    """Whether the file begins as a TIFF or BigTIFF does."""
    with path.open("rb") as file:
        return file.read(4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def _truncated(path: Path, file_size: int, needed: int, what: str) -> SlideError:
    return SlideError(
        path, f"truncated: {what} ends at byte {needed}, the file has {file_size}; copy or download it again"
    )


class _Directory:
    """Reads the directories of one open file."""

    def __init__(self, path: Path, file: BinaryIO, file_size: int) -> None:
        self.path, self.file, self.file_size = path, file, file_size
        head = self.bytes_at(0, 4, "the header")
        self.order: Literal["<", ">"] = "<" if head[:2] == b"II" else ">"
        self.is_big = struct.unpack(self.order + "H", head[2:])[0] == 43
        self.word, self.word_bytes = ("Q", 8) if self.is_big else ("I", 4)
        self.first = self.number_at(8 if self.is_big else 4, self.word, "the header")

    def bytes_at(self, offset: int, count: int, what: str) -> bytes:
        if offset + count > self.file_size:
            raise _truncated(self.path, self.file_size, offset + count, what)
        self.file.seek(offset)
        return self.file.read(count)

    def number_at(self, offset: int, code: str, what: str) -> int:
        raw = self.bytes_at(offset, struct.calcsize("=" + code), what)
        return int(struct.unpack(self.order + code, raw)[0])

    def read(self, offset: int) -> tuple[dict[int, TagValue], int]:
        """The tags of the directory at an offset, and the offset of the next."""
        what = f"the image directory at {offset}"
        count = self.number_at(offset, "Q" if self.is_big else "H", what)
        start = offset + (8 if self.is_big else 2)
        entry_bytes = 20 if self.is_big else 12
        raw = self.bytes_at(start, count * entry_bytes, what)
        tags = {}
        for position in range(0, len(raw), entry_bytes):
            tag, kind, length = struct.unpack(
                self.order + "HH" + self.word, raw[position : position + 4 + self.word_bytes]
            )
            if kind in _TYPES:
                inline = raw[position + 4 + self.word_bytes : position + entry_bytes]
                tags[tag] = self._value(kind, length, inline, f"tag {tag} of the image directory at {offset}")
        return tags, self.number_at(start + count * entry_bytes, self.word, what)

    def _value(self, kind: int, length: int, inline: bytes, what: str) -> TagValue:
        dtype = np.dtype(_TYPES[kind]).newbyteorder(self.order)
        length = length * 2 if kind in _RATIONALS else length
        num_bytes = dtype.itemsize * length
        if num_bytes > self.word_bytes:
            inline = self.bytes_at(struct.unpack(self.order + self.word, inline)[0], num_bytes, what)
        return np.frombuffer(inline[:num_bytes], dtype)


def _make_page(tags: dict[int, TagValue]) -> Page:
    def number(tag: int, default: int = 0) -> int:
        return int(tags[tag][0]) if tag in tags and len(tags[tag]) else default

    offsets = tags.get(_TILE_OFFSETS, tags.get(_STRIP_OFFSETS, np.zeros(0)))
    counts = tags.get(_TILE_COUNTS, tags.get(_STRIP_COUNTS, np.zeros(len(offsets))))
    x_resolution, y_resolution = _ratio(tags.get(_X_RESOLUTION)), _ratio(tags.get(_Y_RESOLUTION))
    return Page(
        size_yx=(number(_HEIGHT), number(_WIDTH)),
        tile_yx=(number(_TILE_HEIGHT), number(_TILE_WIDTH)),
        compression=number(_COMPRESSION, UNCOMPRESSED),
        num_channels=number(_CHANNELS, 1),
        bits=number(_BITS, 1),
        offsets=offsets.astype(np.int64),
        counts=counts.astype(np.int64),
        description=tags[_DESCRIPTION].tobytes().decode("utf-8", "replace") if _DESCRIPTION in tags else "",
        resolution_yx=(y_resolution, x_resolution) if x_resolution and y_resolution else None,
        resolution_unit=number(_RESOLUTION_UNIT) or None,
    )


def _ratio(value: TagValue | None) -> float | None:
    if value is None or len(value) < 2 or int(value[1]) == 0:
        return None
    return int(value[0]) / int(value[1])
