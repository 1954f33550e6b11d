"""Bounds-checked TIFF parser: pages, the place of every tile, and the file's size.

cuCIM prints to stderr and returns stale pixels for a damaged tile, and drops levels whose directory is cut off. So this
parser refuses a file with missing bytes, and a file with numbers beyond any slide before allocating memory for them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.errors import SlideError

UNCOMPRESSED, LZW, JPEG, ADOBE_DEFLATE, DEFLATE = 1, 5, 7, 8, 32946
JPEG2000 = (33003, 33005)

MAX_SIDE_PX = 2**20
"""Largest side of a level; a slide of 75 mm at 0.1 µm/px has 750,000."""

MAX_TILE_PX = 2**26
"""Largest tile, 8192 x 8192; slides have 240 to 4096 a side."""

_MAX_TILE_SIDE_PX = 2**15

_MAX_PAGES = 4096
_MAX_TAGS = 4096
_MAX_TILES = 2**25
_MAX_TEXT_BYTES = 2**24
"""Most bytes of a text; Philips writes the pictures of label and macro into its description."""

_MAX_SUB_PAGES = 64

_SUBFILE_TYPE, _FILL_ORDER, _SUB_DIRECTORIES = 254, 266, 330
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_DESCRIPTION, _CHANNELS, _X_RESOLUTION, _Y_RESOLUTION = 270, 277, 282, 283
_PLANAR, _RESOLUTION_UNIT, _PREDICTOR, _SAMPLE_FORMAT, _JPEG_TABLES = 284, 296, 317, 339, 347
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_COUNTS, _STRIP_OFFSETS, _STRIP_COUNTS = (
    322,
    323,
    324,
    325,
    273,
    279,
)
_NUMBERS = (
    *(_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _CHANNELS, _PLANAR, _RESOLUTION_UNIT),
    *(_PREDICTOR, _SAMPLE_FORMAT, _TILE_WIDTH, _TILE_HEIGHT, _SUBFILE_TYPE, _FILL_ORDER, _SUB_DIRECTORIES),
)
_TABLES = (_TILE_OFFSETS, _TILE_COUNTS, _STRIP_OFFSETS, _STRIP_COUNTS)
_TEXTS = (_DESCRIPTION, _JPEG_TABLES)
_UNSIGNED = {1: "u1", 3: "u2", 4: "u4", 13: "u4", 16: "u8", 18: "u8"}
_BYTES = {1: "u1", 2: "u1", 7: "u1"}
_RATIONAL = {5: "u4", 10: "i4"}
_KINDS = {
    **dict.fromkeys((*_NUMBERS, *_TABLES), _UNSIGNED),
    **dict.fromkeys(_TEXTS, _BYTES),
    **dict.fromkeys((_X_RESOLUTION, _Y_RESOLUTION), _RATIONAL),
}
"""Supported tags and their value types; other tags and types are ignored."""

TagValue = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Page:
    """One image of a TIFF; sizes are height and width.

    Attributes:
        tile_yx: Tile size; (0, 0) for strips.
        compression: TIFF number of the codec.
        num_channels: Samples per pixel.
        bits: Bits per sample; 0 if samples differ.
        offsets: Begin of each tile or strip in the file, int64.
        counts: Bytes of each tile or strip; 0 for a tile that was never written.
        description: ImageDescription, which holds the vendors' metadata.
        resolution_yx: Pixels per resolution unit, or None.
        resolution_unit: 1 none, 2 inch, 3 centimeter; None without the tag.
        photometric: TIFF number of the color space: 2 RGB, 6 YCbCr.
        is_planar: Each channel has its own tiles.
        predictor: 1 none, 2 differences of neighbors; None without the tag.
        sample_format: 1 unsigned integer, 2 signed integer, 3 float; 0 if samples differ.
        jpeg_tables: JPEG tables of all tiles, or empty.
        fill_order: 2 if the bits of every byte are reversed.
        subfile_type: NewSubfileType: 1 reduced version of another page, 4 mask, 9 Aperio's macro.
        number: Index among the file's images, from 0; the parent's number for a sub-page.
        sub_pages: Pages of the SubIFDs, which hold the levels of OME-TIFF.
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
    photometric: int = 2
    is_planar: bool = False
    predictor: int | None = None
    sample_format: int = 1
    jpeg_tables: bytes = b""
    fill_order: int = 1
    subfile_type: int = 0
    number: int = 0
    sub_pages: tuple[Page, ...] = ()

    @property
    def is_tiled(self) -> bool:
        """Whether the page is stored in tiles."""
        return self.tile_yx[0] > 0 and self.tile_yx[1] > 0

    @property
    def grid_yx(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        return (-(-self.size_yx[0] // self.tile_yx[0]), -(-self.size_yx[1] // self.tile_yx[1]))

    @property
    def tile_bytes(self) -> int:
        """Bytes of one decoded tile."""
        return self.tile_yx[0] * self.tile_yx[1] * self.num_channels * max(1, self.bits // 8)


def read_pages(path: Path) -> list[Page]:
    """All pages of a TIFF or BigTIFF, with the place of every tile checked against the size of the file.

    Raises:
        SlideError: A directory, table or tile ends beyond the file's last byte; or sizes or counts exceed any slide.
    """
    file_size = path.stat().st_size
    with path.open("rb") as file:
        reader = _Directory(path, file, file_size)
        pages: list[Page] = []
        offset = reader.first
        offsets_read: set[int] = set()
        while offset:
            if offset in offsets_read:
                raise SlideError(path, "damaged: its image directories form a loop. Fix: copy it again.")
            if len(pages) == _MAX_PAGES:
                raise SlideError(path, f"holds more than {_MAX_PAGES} images. Fix: copy or export it again.")
            offsets_read.add(offset)
            tags, offset = reader.read(offset)
            page = _make_page(tags, len(pages), _read_sub_pages(reader, tags, len(pages)))
            pages.append(page)
            for one in (page, *page.sub_pages):
                _check_page(path, page.number, one, file_size)
    return pages


def _read_sub_pages(reader: _Directory, tags: Mapping[int, TagValue], number: int) -> tuple[Page, ...]:
    """The pages of a tiled page's SubIFDs, at most `_MAX_SUB_PAGES`."""
    offsets = tags[_SUB_DIRECTORIES].tolist() if _SUB_DIRECTORIES in tags and _TILE_WIDTH in tags else []
    return tuple(
        _make_page(reader.read(offset)[0], number) for offset in offsets[:_MAX_SUB_PAGES] if offset > 0
    )


def _check_page(path: Path, number: int, page: Page, file_size: int) -> None:
    num_listed = min(len(page.offsets), len(page.counts))
    is_written = page.counts[:num_listed] > 0
    ends = (page.offsets[:num_listed] + page.counts[:num_listed])[is_written]
    if len(ends) and int(ends.max()) > file_size:
        raise _truncated(path, file_size, int(ends.max()), f"a tile of image {number}")
    if not page.is_tiled:
        return
    (height, width), (tile_height, tile_width) = page.size_yx, page.tile_yx
    if not (0 < height <= MAX_SIDE_PX and 0 < width <= MAX_SIDE_PX):
        raise SlideError(
            path,
            f"image {number} states {width} x {height} px, an impossible size. Fix: copy the file again.",
        )
    if tile_height * tile_width > MAX_TILE_PX or max(tile_height, tile_width) > _MAX_TILE_SIDE_PX:
        raise SlideError(
            path,
            f"image {number} states tiles of {tile_width} x {tile_height} px, too large to read one at a time. "
            "Fix: save it again with tiles of 256 to 4096 px.",
        )
    num_tiles = page.grid_yx[0] * page.grid_yx[1]
    if num_tiles > num_listed:
        raise SlideError(
            path, f"image {number} lists {num_listed} of its {num_tiles} tiles. Fix: copy the file again."
        )


def is_tiff(path: Path) -> bool:
    """Whether the file begins with the magic bytes of TIFF or BigTIFF."""
    with path.open("rb") as file:
        return file.read(4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def _truncated(path: Path, file_size: int, needed: int, what: str) -> SlideError:
    return SlideError(
        path,
        f"truncated: {what} ends at byte {needed}, the file has {file_size}. Fix: copy or download it again.",
    )


class _Directory:
    """Reads the directories of one open file."""

    def __init__(self, path: Path, file: BinaryIO, file_size: int) -> None:
        self.path, self.file, self.file_size = path, file, file_size
        self.num_listed = 0
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
        if count > _MAX_TAGS:
            raise SlideError(
                self.path, f"damaged: {what} states {count} tags. Fix: copy or download it again."
            )
        start = offset + (8 if self.is_big else 2)
        entry_bytes = 20 if self.is_big else 12
        raw = self.bytes_at(start, count * entry_bytes, what)
        tags: dict[int, TagValue] = {}
        for position in range(0, len(raw), entry_bytes):
            tag, kind, length = struct.unpack(
                self.order + "HH" + self.word, raw[position : position + 4 + self.word_bytes]
            )
            # The first of repeated tags counts, as in libtiff, which cuCIM and OpenSlide use.
            if kind in _KINDS.get(tag, {}) and tag not in tags:
                inline = raw[position + 4 + self.word_bytes : position + entry_bytes]
                tags[tag] = self._value(tag, kind, length, inline, f"tag {tag} of {what}")
            elif tag == _PREDICTOR:  # `cucim_backend` needs the presence of the tag, not its value.
                tags.setdefault(tag, np.zeros(1, np.int64))
        return tags, self.number_at(start + count * entry_bytes, self.word, what)

    def _value(self, tag: int, kind: int, length: int, inline: bytes, what: str) -> TagValue:
        dtype = np.dtype(_KINDS[tag][kind]).newbyteorder(self.order)
        length = length * 2 if kind in _RATIONAL else length
        if tag in _TABLES:
            self.num_listed += length
        if self.num_listed > _MAX_TILES or (tag not in _TABLES and length > _MAX_TEXT_BYTES):
            raise SlideError(
                self.path, f"damaged: {what} states {length} values. Fix: copy or download it again."
            )
        num_bytes = dtype.itemsize * length
        if num_bytes > self.word_bytes:
            inline = self.bytes_at(struct.unpack(self.order + self.word, inline)[0], num_bytes, what)
        return np.frombuffer(inline[:num_bytes], dtype)


def _make_page(tags: Mapping[int, TagValue], page_number: int, sub_pages: tuple[Page, ...] = ()) -> Page:
    def number(tag: int, default: int = 0) -> int:
        return int(tags[tag][0]) if tag in tags and len(tags[tag]) else default

    def same(tag: int, default: int) -> int:
        """The common value of all samples; 0 if they differ."""
        values = set(tags[tag].tolist()) if tag in tags and len(tags[tag]) else {default}
        return int(values.pop()) if len(values) == 1 else 0

    nothing = np.zeros(0, np.int64)
    x_resolution, y_resolution = _ratio(tags.get(_X_RESOLUTION)), _ratio(tags.get(_Y_RESOLUTION))
    return Page(
        size_yx=(number(_HEIGHT), number(_WIDTH)),
        tile_yx=(number(_TILE_HEIGHT), number(_TILE_WIDTH)),
        compression=number(_COMPRESSION, UNCOMPRESSED),
        num_channels=number(_CHANNELS, 1),
        bits=same(_BITS, 1),
        offsets=_places(tags.get(_TILE_OFFSETS, tags.get(_STRIP_OFFSETS, nothing))),
        counts=_places(tags.get(_TILE_COUNTS, tags.get(_STRIP_COUNTS, nothing))),
        description=tags[_DESCRIPTION].tobytes().decode("utf-8", "replace") if _DESCRIPTION in tags else "",
        resolution_yx=(y_resolution, x_resolution) if x_resolution and y_resolution else None,
        resolution_unit=number(_RESOLUTION_UNIT) or None,
        photometric=number(_PHOTOMETRIC),
        is_planar=number(_PLANAR, 1) != 1,
        predictor=number(_PREDICTOR) if _PREDICTOR in tags else None,
        sample_format=same(_SAMPLE_FORMAT, 1),
        jpeg_tables=tags[_JPEG_TABLES].tobytes() if _JPEG_TABLES in tags else b"",
        fill_order=number(_FILL_ORDER, 1),
        subfile_type=number(_SUBFILE_TYPE),
        number=page_number,
        sub_pages=sub_pages,
    )


def _places(values: TagValue) -> NDArray[np.int64]:
    """Offsets as int64, clipped so that adding two of them cannot overflow."""
    return np.minimum(values.astype(np.uint64), 2**62 - 1).astype(np.int64)


def _ratio(value: TagValue | None) -> float | None:
    if value is None or len(value) < 2 or int(value[1]) == 0:
        return None
    return int(value[0]) / int(value[1])
