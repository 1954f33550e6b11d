"""Small slides with one picture in every kind of tile that is read."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

TILE_PX, SIDE_PX, MPP = 128, 512, 1.0
_NONE, _LZW, _JPEG, _DEFLATE, _JPEG2000_RGB = 1, 5, 7, 8, 33005
_RGB, _YCBCR = 2, 6

Pixels = NDArray[np.uint8]


class Codec(NamedTuple):
    """A kind of tile: its TIFF numbers, its encoder, and how far off its pixels may be (means of 0..255)."""

    compression: int
    photometric: int
    encode: Callable[[Pixels], bytes]
    tolerance: float


def picture() -> Pixels:
    """Shape (512, 512, 3), uint8: ramps in three directions, another in every tile."""
    y, x = np.mgrid[:SIDE_PX, :SIDE_PX] / SIDE_PX
    return np.stack([255 * y, 255 * x, 127 + 120 * np.sin(6 * (x + y))], axis=-1).astype(np.uint8)


def write_sample(path: Path, codec: Codec) -> None:
    """Write the picture as one level of tiles, 1 µm/px."""
    pixels = picture()
    tiles = (
        codec.encode(np.ascontiguousarray(pixels[y : y + TILE_PX, x : x + TILE_PX]))
        for y in range(0, SIDE_PX, TILE_PX)
        for x in range(0, SIDE_PX, TILE_PX)
    )
    is_raw = codec.compression == _NONE
    with tifffile.TiffWriter(path) as writer:
        writer.write(
            pixels if is_raw else _as_they_are(tiles),
            shape=pixels.shape,
            dtype=np.uint8,
            tile=(TILE_PX, TILE_PX),
            photometric="rgb",
            compression=None if is_raw else "deflate",
            resolution=(10_000 / MPP, 10_000 / MPP),
            resolutionunit="CENTIMETER",
            metadata=None,
        )
    if (
        not is_raw
    ):  # tifffile encodes most kinds with an optional package only; these tiles are encoded already.
        with tifffile.TiffFile(path, mode="r+") as file:
            tags = file.pages.first.tags
            tags["Compression"].overwrite(codec.compression)
            tags["PhotometricInterpretation"].overwrite(codec.photometric)


def _as_they_are(tiles: Iterator[bytes]) -> Iterator[bytes]:
    yield from tiles


def _with_pillow(kind: str) -> Callable[[Pixels], bytes]:
    options = {"JPEG": {"quality": 95, "subsampling": 0}, "JPEG2000": {"no_jp2": True, "mct": 1}}[kind]

    def encode(tile: Pixels) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(tile).save(buffer, kind, **options)
        return buffer.getvalue()

    return encode


def _deflate(tile: Pixels) -> bytes:
    import zlib

    return zlib.compress(tile.tobytes())


def _lzw(tile: Pixels) -> bytes:
    """TIFF 6.0, section 13, without ever using the table: literal codes of 9 bits, cleared before they grow."""
    clear, end, most = 256, 257, 250
    content = tile.tobytes()
    codes: list[int] = []
    for start in range(0, len(content), most):
        codes += [clear, *content[start : start + most]]
    bits = np.unpackbits(np.array([*codes, end], ">u2").view(np.uint8).reshape(-1, 2), axis=1)[:, 7:]
    return np.packbits(bits.reshape(-1)).tobytes()


CODECS = {
    "uncompressed": Codec(_NONE, _RGB, bytes, 0.0),
    "LZW": Codec(_LZW, _RGB, _lzw, 0.0),
    "deflate": Codec(_DEFLATE, _RGB, _deflate, 0.0),
    "JPEG": Codec(_JPEG, _YCBCR, _with_pillow("JPEG"), 3.0),
    "JPEG 2000": Codec(_JPEG2000_RGB, _RGB, _with_pillow("JPEG2000"), 3.0),
}
"""Name of a kind of tile -> how it is made."""
