"""Small sound slides in every codec that cuCIM reads, written here, and the real ones."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

TILE_PX = 64
SUFFIXES = (".tif", ".svs")


def picture(size_yx: tuple[int, int] = (260, 330)) -> NDArray[np.uint8]:
    """Smooth color with some grain: its tiles have long entropy-coded parts."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (size_yx[0] // 20, size_yx[1] // 20, 3), np.uint8)
    smooth = cv2.resize(coarse, size_yx[::-1], interpolation=cv2.INTER_CUBIC).astype(int)
    return (smooth + rng.integers(-20, 21, (*size_yx, 3))).clip(0, 255).astype(np.uint8)


def real_slides(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES]


def write_simulated(folder: Path) -> list[Path]:
    """One slide of three levels for each codec, and two under a name that OpenSlide reads instead of cuCIM."""
    paths = [_write(folder / f"{name}.tif", *how) for name, how in CODECS.items()]
    others = [_write(folder / f"{name}.ptif", *CODECS[name]) for name in ("jpeg-big", "deflate")]
    return paths + others


def _as_is(tile: NDArray[np.uint8]) -> bytes:
    return tile.tobytes()


def _as_jpeg(**options: object) -> Callable[[NDArray[np.uint8]], bytes]:
    def encode(tile: NDArray[np.uint8]) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(tile).save(buffer, "JPEG", quality=90, **options)
        return buffer.getvalue()

    return encode


def _as_jpeg2000(tile: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(tile).save(buffer, "JPEG2000", no_jp2=True, mct=0)
    return buffer.getvalue()


def _as_lzw(tile: NDArray[np.uint8]) -> bytes:
    """LZW without gain: a clear code (256) before the codes grow beyond nine bits, and every byte for itself."""
    codes: list[int] = []
    for number, value in enumerate(tile.tobytes()):
        codes += [256, value] if number % 200 == 0 else [value]
    bits = "".join(f"{code:09b}" for code in [*codes, 257])
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def _as_deflate(tile: NDArray[np.uint8]) -> bytes:
    return zlib.compress(tile.tobytes())


CODECS: dict[str, tuple[int, int, Callable[[NDArray[np.uint8]], bytes], bool]] = {
    # TIFF's compression and photometric interpretation, the encoder, whether the file is a BigTIFF
    "uncompressed": (1, 2, _as_is, False),
    "lzw": (5, 2, _as_lzw, False),
    "deflate": (8, 2, _as_deflate, True),
    "jpeg-ycbcr": (7, 6, _as_jpeg(subsampling=2), False),
    "jpeg-big": (7, 6, _as_jpeg(subsampling=0), True),
    "jpeg-progressive": (7, 6, _as_jpeg(progressive=True), False),
    "jpeg2000": (33005, 2, _as_jpeg2000, False),
}


def _write(
    path: Path, compression: int, photometric: int, encode: Callable[[NDArray[np.uint8]], bytes], is_big: bool
) -> Path:
    with tifffile.TiffWriter(path, bigtiff=is_big) as writer:
        for step in (1, 2, 4):
            level = np.ascontiguousarray(picture()[::step, ::step])
            how = {"data": level} if compression == 1 else {"data": (encode(tile) for tile in _tiles(level))}
            writer.write(
                **how,
                shape=level.shape,
                dtype=np.uint8,
                tile=(TILE_PX, TILE_PX),
                photometric="rgb",
                compression=None if compression == 1 else "deflate",
                subfiletype=int(step > 1),
                resolution=(20_000, 20_000),
                resolutionunit="CENTIMETER",
                metadata=None,
            )
    # tifffile encodes with optional packages only; the tiles are encoded already, so the tags are set.
    with tifffile.TiffFile(path, mode="r+") as file:
        for page in file.pages:
            page.tags["Compression"].overwrite(compression)
            page.tags["PhotometricInterpretation"].overwrite(photometric)
    return path


def _tiles(level: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    height, width = level.shape[:2]
    padded = np.pad(level, [(0, -height % TILE_PX), (0, -width % TILE_PX), (0, 0)], mode="edge")
    for y in range(0, height, TILE_PX):
        for x in range(0, width, TILE_PX):
            yield np.ascontiguousarray(padded[y : y + TILE_PX, x : x + TILE_PX])
