"""Write tiled, JPEG-compressed, pyramidal TIFF that OpenSlide and cuCIM open with the right resolution.

The finest level streams to the file during rendering. Of coarser levels only encoded tiles stay in memory, so memory
does not grow with the pixels of the slide. Equal pixels give equal bytes: the file has no dates and no names.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from histo_monai.data.simulated.raster.tiff import Directory, TiffWriter
from histo_monai.utils.storage import whole_file

Pixels = NDArray[np.uint8]
TILE_PX = 256
BIG_PX = 6_000_000_000  # At most 0.6 bytes per px with all levels: below 4 GiB.


class _Level:
    """One level of the pyramid, which cuts rows into encoded tiles."""

    def __init__(self, height: int, width: int, quality: int) -> None:
        self.height, self.width, self.quality = height, width, quality
        self.tiles: list[bytes] = []
        self._pending: list[Pixels] = []

    def push(self, rows: Pixels) -> None:
        """Add the next rows, shape (n, at least width, 3); rows below the level's height are dropped."""
        self._pending.append(rows[:, : self.width])
        if sum(len(p) for p in self._pending) >= TILE_PX:
            block = np.concatenate(self._pending)
            whole = block.shape[0] // TILE_PX * TILE_PX
            for top in range(0, whole, TILE_PX):
                self._cut(block[top : top + TILE_PX])
            self._pending = [block[whole:]]

    def finish(self) -> None:
        """Encode the last, incomplete row of tiles."""
        block = np.concatenate(self._pending)
        if block.shape[0]:
            self._cut(block)
        self._pending = []

    def _cut(self, rows: Pixels) -> None:
        full = np.pad(rows, ((0, TILE_PX - rows.shape[0]), (0, -self.width % TILE_PX), (0, 0)), mode="edge")
        for left in range(0, full.shape[1], TILE_PX):
            self.tiles.append(encode_jpeg(full[:, left : left + TILE_PX], self.quality))


def encode_jpeg(pixels: Pixels, quality: int) -> bytes:
    """One JPEG stream, YCbCr 4:2:0, of RGB pixels (h, w, 3) uint8."""
    buffer = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(pixels), "RGB")
    image.save(buffer, "JPEG", quality=quality, subsampling="4:2:0")
    return buffer.getvalue()


def level_downsamples(height: int, width: int, factor: int) -> tuple[int, ...]:
    """Powers of `factor` from 1 on, up to the first level that fits into one tile or to five levels."""
    downsamples = [1]
    while max(height, width) // downsamples[-1] > TILE_PX and len(downsamples) < 6:
        downsamples.append(downsamples[-1] * factor)
    return tuple(d for d in downsamples if min(height, width) // d >= 16)


def write_pyramid(
    path: Path,
    strips: Iterable[Pixels],
    size_yx: tuple[int, int],
    *,
    mpp: float,
    factor: int = 2,
    quality: int = 85,
    description: str | None = None,
) -> None:
    """Write a slide from strips of its finest level, in one step.

    Args:
        path: Final name.
        strips: RGB strips from top to bottom, each (rows, width, 3) uint8; except in the last strip, rows are a
            multiple of the coarsest downsample.
        size_yx: Height and width of the finest level, px.
        mpp: Resolution of the finest level, µm per px; written as TIFF resolution in px per cm.
        factor: Downsample from a level to the next: 2 or 4.
        description: TIFF ImageDescription of the finest level (Aperio's, or none).
    """
    height, width = size_yx
    downsamples = level_downsamples(height, width, factor)
    levels = [_Level(height // d, width // d, quality) for d in downsamples]
    with whole_file(path) as draft, draft.open("wb") as file:
        tiff = TiffWriter(file, big=height * width > BIG_PX)
        for index, (level, downsample) in enumerate(zip(levels, downsamples, strict=True)):
            tiles: Iterator[bytes] = _stream(strips, levels, downsamples) if index == 0 else iter(level.tiles)
            about = description if index == 0 else None
            per_cm = 1e4 / (mpp * downsample)
            tiff.add_level(tiles, Directory(level.height, level.width, TILE_PX, per_cm, index > 0, about))
        tiff.close()


def _stream(
    strips: Iterable[Pixels], levels: Sequence[_Level], downsamples: Sequence[int]
) -> Iterator[bytes]:
    """Encoded tiles of the finest level, while the coarser levels collect theirs."""
    finest = levels[0]
    for strip in strips:
        finest.push(strip)
        rows = strip
        for before, after, level in zip(downsamples, downsamples[1:], levels[1:], strict=False):
            step = after // before
            rows = rows[: rows.shape[0] // step * step, : rows.shape[1] // step * step]
            if not rows.size:
                break
            size = (rows.shape[1] // step, rows.shape[0] // step)
            rows = np.asarray(cv2.resize(rows, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
            level.push(rows)
        yield from finest.tiles
        finest.tiles.clear()
    for level in levels:
        level.finish()
    yield from finest.tiles
    finest.tiles.clear()


def write_patch(path: Path, pixels: Pixels, mpp: float) -> None:
    """Write a small RGB image (h, w, 3), uint8, as lossless TIFF with its resolution."""
    with whole_file(path) as draft, tifffile.TiffWriter(draft, bigtiff=False) as tiff:
        tiff.write(
            pixels,
            photometric="rgb",
            compression="deflate",
            predictor=True,
            resolution=(1e4 / mpp, 1e4 / mpp),
            resolutionunit="CENTIMETER",
            metadata=None,
            software=False,
        )
