"""TIFF files with tags that say what is not so."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from histo_monai.data.simulated.raster.tiff import Directory, TiffWriter

WIDTH, HEIGHT, BITS, COMPRESSION, CHANNELS = 256, 257, 258, 259, 277
X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT = 282, 283, 296
TILE_WIDTH, TILE_LENGTH, TILE_OFFSETS, TILE_COUNTS, DESCRIPTION = 322, 323, 324, 325, 270
SHORT, LONG = 3, 4


def entries(data: bytes) -> dict[int, int]:
    """Where the entry of each tag of the first directory stands, in a small-endian TIFF."""
    (offset,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, offset)
    places = [offset + 2 + 12 * i for i in range(count)]
    return {struct.unpack_from("<H", data, place)[0]: place for place in places}


def with_tag(data: bytes, tag: int, value: int, *, kind: int = LONG, count: int = 1) -> bytes:
    """A TIFF in which one tag holds another number, or claims to lie elsewhere or to be longer."""
    place = entries(data)[tag]
    return data[:place] + struct.pack("<HHII", tag, kind, count, value) + data[place + 12 :]


def without_tag(data: bytes, tag: int) -> bytes:
    """A TIFF whose tag is replaced by one that nobody knows."""
    place = entries(data)[tag]
    return data[:place] + struct.pack("<H", 65_000) + data[place + 2 :]


def with_numbers(data: bytes, tag: int, change: Callable[[list[int]], Sequence[int]]) -> bytes:
    """A TIFF whose list of LONG at a tag is changed; its length stays."""
    place = entries(data)[tag]
    _, kind, count, offset = struct.unpack_from("<HHII", data, place)
    assert kind == LONG
    numbers = change(list(struct.unpack_from(f"<{count}I", data, offset)))
    return data[:offset] + struct.pack(f"<{count}I", *numbers) + data[offset + 4 * count :]


def with_ratio(data: bytes, tag: int, numerator: int, denominator: int) -> bytes:
    """A TIFF with another RATIONAL at a tag."""
    (offset,) = struct.unpack_from("<I", data, entries(data)[tag] + 8)
    return data[:offset] + struct.pack("<II", numerator, denominator) + data[offset + 8 :]


def jpeg(pixels: np.ndarray, quality: int = 90) -> bytes:
    """One JPEG stream, 4:2:0."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality, subsampling=2)
    return buffer.getvalue()


def write_jpeg_slide(
    path: Path, pixels: np.ndarray, change: Callable[[int, bytes], bytes] = lambda number, tile: tile
) -> None:
    """A slide of JPEG tiles of 128 px, 1 µm/px; `change` gets number and stream of each tile."""
    tiles = [
        change(number, jpeg(pixels[y : y + 128, x : x + 128]))
        for number, (y, x) in enumerate(
            (y, x) for y in range(0, pixels.shape[0], 128) for x in range(0, pixels.shape[1], 128)
        )
    ]
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        writer = TiffWriter(file, big=False)
        writer.add_level(tiles, Directory(pixels.shape[0], pixels.shape[1], 128, 10_000.0, False, None))
        writer.close()


def with_frame_size(stream: bytes, height: int, width: int) -> bytes:
    """A JPEG whose frame header says another size than its scan has."""
    place = stream.index(b"\xff\xc0") + 5
    return stream[:place] + struct.pack(">HH", height, width) + stream[place + 4 :]
