"""Sound slides, and random damage to them that a number repeats exactly.

`Specimen` is a slide with the places of its directories and tiles; `DAMAGES` holds what may happen to one: a
function of a generator and a specimen that returns edits, ``(offset, bytes)``, and the tile that was hit, if it was
one. An edit without bytes cuts the file off there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tifffile

Edit = tuple[int, bytes]
Tile = tuple[int, int, int]
"""Number of the image in the file, row, column."""

_NAMES = (
    *(
        "NewSubfileType",
        "ImageWidth",
        "ImageLength",
        "BitsPerSample",
        "Compression",
        "PhotometricInterpretation",
    ),
    *("ImageDescription", "Orientation", "SamplesPerPixel", "PlanarConfiguration", "Predictor", "TileWidth"),
    *("TileLength", "TileOffsets", "TileByteCounts", "JPEGTables", "YCbCrSubSampling"),
)
TAGS = {name: tifffile.TIFF.TAGS[name] for name in _NAMES}
TEMPTING = (
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    15,
    16,
    17,
    255,
    256,
    257,
    512,
    4096,
    8192,
    32767,
    32768,
    33003,
    33005,
    34712,
)
TEMPTING += (65535, 65536, 2**20, 2**24, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)


@dataclass(frozen=True, slots=True)
class Entry:
    """One tag of a directory: where it lies, and where its values do."""

    offset: int
    code: int
    dtype: np.dtype
    count: int
    value_offset: int


@dataclass(frozen=True, slots=True)
class TiledImage:
    """An image of the file that is stored in tiles."""

    size_yx: tuple[int, int]
    tile_yx: tuple[int, int]
    offsets: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def columns(self) -> int:
        return -(-self.size_yx[1] // self.tile_yx[1])

    def number(self, row: int, column: int) -> int:
        return row * self.columns + column


@dataclass(frozen=True, slots=True)
class Specimen:
    """A sound slide."""

    path: Path
    data: bytes
    byteorder: str
    is_big: bool
    entries: tuple[Entry, ...]
    images: tuple[TiledImage, ...] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Specimen:
        with tifffile.TiffFile(path) as file:
            entries, images = [], []
            for page in file.pages:
                for tag in page.tags.values():
                    dtype = np.dtype(tifffile.TIFF.DATA_FORMATS[tag.dtype][-1].replace("s", "B"))
                    dtype = dtype.newbyteorder(file.byteorder)
                    entries.append(Entry(tag.offset, tag.code, dtype, tag.count, tag.valueoffset))
                if page.is_tiled:
                    images.append(
                        TiledImage(
                            (page.imagelength, page.imagewidth),
                            (page.tilelength, page.tilewidth),
                            tuple(page.dataoffsets),
                            tuple(page.databytecounts),
                        )
                    )
            order, is_big = file.byteorder, file.is_bigtiff
        return cls(path, path.read_bytes(), order, is_big, tuple(entries), tuple(images))

    def random_tile(self, rng: np.random.Generator) -> Tile:
        """A tile that was written, of any image alike."""
        while True:
            number = int(rng.integers(len(self.images)))
            image = self.images[number]
            tile = int(rng.integers(len(image.offsets)))
            if image.counts[tile] > 32:
                return number, *divmod(tile, image.columns)

    def span(self, tile: Tile) -> tuple[int, int]:
        """First byte and length of a tile."""
        image = self.images[tile[0]]
        number = image.number(*tile[1:])
        return image.offsets[number], image.counts[number]

    def tile_at(self, offset: int) -> Tile | None:
        """The tile that holds a byte of the file."""
        for which, image in enumerate(self.images):
            for number, (first, count) in enumerate(zip(image.offsets, image.counts, strict=True)):
                if first <= offset < first + count:
                    return which, *divmod(number, image.columns)
        return None


Damage = Callable[[np.random.Generator, Specimen], tuple[list[Edit], Tile | None]]


def _length(rng: np.random.Generator, most: int) -> int:
    return int(2 ** rng.uniform(0, np.log2(most)))


def flipped_bytes(rng: np.random.Generator, slide: Specimen) -> tuple[list[Edit], Tile | None]:
    places = rng.integers(0, len(slide.data), _length(rng, 64)).tolist()
    return [(at, bytes([slide.data[at] ^ int(rng.integers(1, 256))])) for at in places], slide.tile_at(
        places[0]
    )


def run_of_zeros(rng: np.random.Generator, slide: Specimen) -> tuple[list[Edit], Tile | None]:
    at = int(rng.integers(len(slide.data)))
    return [(at, bytes(min(_length(rng, 2**20), len(slide.data) - at)))], slide.tile_at(at)


def cut_off(rng: np.random.Generator, slide: Specimen) -> tuple[list[Edit], Tile | None]:
    size = int(rng.integers(len(slide.data)))
    return [(size, b"")], slide.tile_at(size)


def swapped_blocks(rng: np.random.Generator, slide: Specimen) -> tuple[list[Edit], Tile | None]:
    size = int(rng.choice([512, 4096, 65536]))
    one, other = (int(rng.integers(max(1, len(slide.data) // size))) * size for _ in range(2))
    blocks = [slide.data[at : at + size] for at in (one, other)]
    size = min(map(len, blocks))
    return [(one, blocks[1][:size]), (other, blocks[0][:size])], slide.tile_at(one)


def tag_of_a_directory(rng: np.random.Generator, slide: Specimen) -> tuple[list[Edit], Tile | None]:
    """Its number, kind, count or place: the twelve (or twenty) bytes that stand in the directory itself."""
    entry = slide.entries[int(rng.integers(len(slide.entries)))]
    fields = (
        [(0, "H"), (2, "H"), (4, "Q"), (12, "Q")]
        if slide.is_big
        else [(0, "H"), (2, "H"), (4, "I"), (8, "I")]
    )
    at, code = fields[int(rng.integers(4))]
    most = 2 ** (8 * struct.calcsize("=" + code))
    value = int(rng.choice(TAGS_AND_KINDS)) if code == "H" else _tempting(rng, most)
    return [(entry.offset + at, struct.pack(slide.byteorder + code, value % most))], None


TAGS_AND_KINDS = (*range(20), *TAGS.values())


def _tempting(rng: np.random.Generator, most: int) -> int:
    if rng.random() < 0.2:
        return int(rng.integers(0, min(most, 2**63)))
    return TEMPTING[int(rng.integers(len(TEMPTING)))] % most


def value_of_a_tag(rng: np.random.Generator, slide: Specimen) -> tuple[list[Edit], Tile | None]:
    known = [entry for entry in slide.entries if entry.code in TAGS.values()]
    codes = sorted({entry.code for entry in known})
    code = codes[int(rng.integers(len(codes)))]  # each tag alike, however many images have it
    same = [entry for entry in known if entry.code == code]
    entry = same[int(rng.integers(len(same)))]
    which = int(rng.integers(entry.count))
    value = _tempting(rng, 2 ** (8 * entry.dtype.itemsize))
    raw = value.to_bytes(entry.dtype.itemsize, "little" if slide.byteorder == "<" else "big")
    return [(entry.value_offset + which * entry.dtype.itemsize, raw)], None


def place_of_a_tile(rng: np.random.Generator, slide: Specimen) -> tuple[list[Edit], Tile | None]:
    """Its offset or its count becomes another tile's, a little off, or tempting."""
    tile = slide.random_tile(rng)
    image = slide.images[tile[0]]
    number, offsets = image.number(*tile[1:]), image.offsets
    is_offset = rng.random() < 0.5
    code = TAGS["TileOffsets" if is_offset else "TileByteCounts"]
    values = offsets if is_offset else image.counts
    (entry,) = (
        entry
        for entry in slide.entries
        if entry.code == code and entry.count == len(values) and _values(slide, entry) == values
    )
    other = values[int(rng.integers(len(values)))]
    most = 2 ** (8 * entry.dtype.itemsize)
    value = (other, values[number] + int(rng.integers(-64, 65)), _tempting(rng, most))[int(rng.integers(3))]
    raw = (value % most).to_bytes(entry.dtype.itemsize, "little" if slide.byteorder == "<" else "big")
    return [(entry.value_offset + number * entry.dtype.itemsize, raw)], tile


def _values(slide: Specimen, entry: Entry) -> tuple[int, ...]:
    return tuple(np.frombuffer(slide.data, entry.dtype, entry.count, entry.value_offset).tolist())


def byte_of_a_tiles_head(rng: np.random.Generator, slide: Specimen) -> tuple[list[Edit], Tile | None]:
    """Frame header, tables, scan header: the first 200 bytes, where a JPEG of Aperio has all of them."""
    tile = slide.random_tile(rng)
    offset, count = slide.span(tile)
    places = offset + rng.integers(0, min(count, 200), _length(rng, 4))
    return [(int(at), bytes([int(rng.integers(256))])) for at in places], tile


def frame_of_a_tile(rng: np.random.Generator, slide: Specimen) -> tuple[list[Edit], Tile | None]:
    """A JPEG's frame header (SOF) or JPEG 2000's image header (SIZ) that says something else."""
    tile = slide.random_tile(rng)
    offset, count = slide.span(tile)
    head = slide.data[offset : offset + min(count, 4096)]
    if head[:2] == b"\xff\x4f":
        at, code, most = [(8 + 4 * k, ">I", 2**32) for k in range(8)][int(rng.integers(8))]
        if rng.random() < 0.3:
            at, code, most = (
                (40, ">H", 2**16) if rng.random() < 0.3 else (42 + int(rng.integers(9)), ">B", 256)
            )
        return [(offset + at, struct.pack(code, _tempting(rng, most)))], tile
    at = max(head.find(b"\xff\xc0"), 0)
    choices = [(at + 1, ">B"), (at + 2, ">H"), (at + 4, ">B"), (at + 5, ">H"), (at + 7, ">H")]
    choices += [(at + 9 + k, ">B") for k in range(10)]
    at, code = choices[int(rng.integers(len(choices)))]
    value = _tempting(rng, 256 ** struct.calcsize(code))
    if at == head.find(b"\xff\xc0") + 1:
        value = int(rng.integers(0xC0, 0xD0))
    return [(offset + at, struct.pack(code, value))], tile


def body_of_a_tile(rng: np.random.Generator, slide: Specimen) -> tuple[list[Edit], Tile | None]:
    """Both ends stay; in between a few bytes change, or a run of zeros or noise lies."""
    tile = slide.random_tile(rng)
    offset, count = slide.span(tile)
    first, last = offset + min(700, count // 2), offset + count - 8
    if rng.random() < 0.5:
        places = rng.integers(first, max(last, first + 1), _length(rng, 8)).tolist()
        return [(at, bytes([slide.data[at] ^ int(rng.integers(1, 256))])) for at in places], tile
    at = int(rng.integers(first, max(last, first + 1)))
    size = min(_length(rng, 4096), max(1, last - at))
    return [(at, bytes(size) if rng.random() < 0.5 else rng.bytes(size))], tile


def tile_of_another_make(rng: np.random.Generator, slide: Specimen) -> tuple[list[Edit], Tile | None]:
    """The bytes of another tile, of any image; or noise behind a sound start."""
    tile = slide.random_tile(rng)
    offset, count = slide.span(tile)
    if rng.random() < 0.2:
        return [(offset + 2, rng.bytes(count - 2))], tile
    other, size = slide.span(slide.random_tile(rng))
    return [(offset, slide.data[other : other + min(size, count)])], tile


def tables_of_all_tiles(rng: np.random.Generator, slide: Specimen) -> tuple[list[Edit], Tile | None]:
    """JPEGTables, where the file has them; else the first kilobyte of it."""
    tables = [entry for entry in slide.entries if entry.code == TAGS["JPEGTables"]]
    first, count = 0, min(1024, len(slide.data))
    if tables:
        entry = tables[int(rng.integers(len(tables)))]
        first, count = entry.value_offset, entry.count
    places = first + rng.integers(0, count, _length(rng, 8))
    return [(int(at), bytes([int(rng.integers(256))])) for at in places], None


DAMAGES: dict[str, Damage] = {
    function.__name__: function
    for function in (
        flipped_bytes,
        run_of_zeros,
        cut_off,
        swapped_blocks,
        tag_of_a_directory,
        value_of_a_tag,
        place_of_a_tile,
        byte_of_a_tiles_head,
        frame_of_a_tile,
        body_of_a_tile,
        tile_of_another_make,
        tables_of_all_tiles,
    )
}
