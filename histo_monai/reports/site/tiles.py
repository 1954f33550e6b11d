"""Deep Zoom tiles of a whole slide, JPEG files for the viewer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.slides import Box, Slide

TILE_PX = 512
FORMAT = "jpg"
_QUALITY = 82


@dataclass(frozen=True)
class Pyramid:
    """Size and resolution of a slide's tiles.

    Attributes:
        width: px of the finest level.
        height: px of the finest level.
        mpp: µm/px of the finest level.
    """

    width: int
    height: int
    mpp: float

    @classmethod
    def of(cls, slide: Slide, mpp: float, max_side_px: int) -> Pyramid:
        """Pyramid with finest level `mpp`, or coarser if the slide is coarser or would exceed `max_side_px`."""
        height_um, width_um = (side * slide.mpp for side in slide.size_yx)
        mpp = max(mpp, slide.mpp, max(height_um, width_um) / max_side_px)
        return cls(max(1, math.ceil(width_um / mpp)), max(1, math.ceil(height_um / mpp)), mpp)

    @property
    def num_levels(self) -> int:
        """Number of levels, from one pixel to the finest."""
        return math.ceil(math.log2(max(self.width, self.height))) + 1


def write_tiles(slide: Slide, pyramid: Pyramid, folder: Path) -> int:
    """Write `folder/<level>/<column>_<row>.jpg`, levels numbered from the coarsest; number of tiles.

    The finest level is read and halved row by row; only the second level is in memory as a whole.

    Args:
        slide: open slide.
        folder: created.
    """
    level = pyramid.num_levels - 1
    half = np.full((math.ceil(pyramid.height / 2), math.ceil(pyramid.width / 2), 3), 255, np.uint8)
    columns = math.ceil(pyramid.width / TILE_PX)
    num = 0
    (folder / str(level)).mkdir(parents=True)
    for row in range(math.ceil(pyramid.height / TILE_PX)):
        step = TILE_PX * pyramid.mpp / slide.mpp
        boxes = [
            Box(((row + 0.5) * step, (column + 0.5) * step), TILE_PX, pyramid.mpp)
            for column in range(columns)
        ]
        for column, pixels in enumerate(slide.read_many(boxes).transpose(0, 2, 3, 1)):
            y, x = row * TILE_PX, column * TILE_PX
            tile = pixels[: pyramid.height - y, : pyramid.width - x]
            _write(folder / str(level) / f"{column}_{row}.{FORMAT}", tile)
            small = _halved(tile)
            half[y // 2 : y // 2 + small.shape[0], x // 2 : x // 2 + small.shape[1]] = small
            num += 1
    while level > 0:
        level -= 1
        num += _write_level(folder / str(level), half)
        half = _halved(half)
    return num


def _write_level(folder: Path, pixels: NDArray[np.uint8]) -> int:
    folder.mkdir()
    places = [(y, x) for y in range(0, pixels.shape[0], TILE_PX) for x in range(0, pixels.shape[1], TILE_PX)]
    for y, x in places:
        tile = pixels[y : y + TILE_PX, x : x + TILE_PX]
        _write(folder / f"{x // TILE_PX}_{y // TILE_PX}.{FORMAT}", tile)
    return len(places)


def _halved(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = pixels.shape[:2]
    size = (math.ceil(width / 2), math.ceil(height / 2))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)


def _write(path: Path, pixels: NDArray[np.uint8]) -> None:
    bgr = np.ascontiguousarray(pixels[..., ::-1])
    done, content = cv2.imencode(f".{FORMAT}", bgr, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    if not done:
        raise OSError(f"{path}: OpenCV could not write a tile of {pixels.shape[1]} × {pixels.shape[0]} px")
    path.write_bytes(content.tobytes())
