"""Maps as pictures that slide viewers lay over the slide and that programs read as numbers: pyramidal palette TIFF."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import matplotlib
import numpy as np
import tifffile
from numpy.typing import NDArray

from histo_monai.slides.annotations import CANVAS
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import whole_file

_TILE_PX = 256
_STEPS = 254
_UM_PER_CM = 10_000
_MOST = 2**32 - 1  # What one half of a TIFF's rational holds.


def _palette() -> NDArray[np.uint8]:
    colors = matplotlib.colormaps["RdYlBu_r"](np.linspace(0, 1, _STEPS + 1))[:, :3]
    return np.vstack([np.full((1, 3), 255), np.rint(255 * colors)]).astype(np.uint8)


PALETTE = _palette()
"""Color of each value of a map's pixel, shape (256, 3), uint8, RGB: 0, white, is what was not looked at; 1 to 255 run
from blue (0.0) over pale yellow to red (1.0), ColorBrewer's RdYlBu, which color-blind eyes can order."""


def encode(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Values 0..1 as indices into `PALETTE`: 0 where NaN, else 1 + 254 times the value, to the nearest whole number.

    Raises:
        InputError: a value lies outside 0..1.
    """
    seen = ~np.isnan(values)
    if not ((values[seen] >= 0) & (values[seen] <= 1)).all():
        low, high = values[seen].min(), values[seen].max()
        raise InputError(
            f"a map takes values in 0..1, or NaN where nothing was looked at; got {low:g}..{high:g}"
        )
    return np.where(seen, 1 + np.rint(_STEPS * np.where(seen, values, 0)), 0).astype(np.uint8)


def write_map(
    path: Path, raster: NDArray[np.float32], stride_um: float, bounds_yx: tuple[int, int] = (0, 0)
) -> None:
    """Write a map as a tiled pyramid of 8-bit palette TIFF, deflated; it appears whole or not at all.

    One pixel of the finest level is one cell, so that the µm per pixel in the resolution tags is the stride and the
    map's upper left corner is that of the slide's canvas; the description states it, as JSON. A pixel of each coarser
    level is the mean over those of its 2 x 2 that were looked at. The same map gives the same bytes.

    Args:
        path: The file; its folder is made.
        raster: Shape (rows, columns), float32, 0..1, NaN where nothing was looked at.
        stride_um: Side of a cell, µm.
        bounds_yx: Corner of the slide's bounds, level-0 pixels, see `slides.Slide`.

    Raises:
        InputError: the raster is no picture or has values outside 0..1, or the stride is not positive.
    """
    if raster.ndim != 2 or not raster.size or not stride_um > 0:
        raise InputError(
            f"a map takes (rows, columns) and a positive stride, got {raster.shape} and {stride_um} µm"
        )
    levels = [encode(level) for level in _levels(raster)]
    about = json.dumps({"origin": CANVAS, "bounds_xy": list(bounds_yx[::-1])})
    with whole_file(path) as draft, tifffile.TiffWriter(draft, bigtiff=False) as writer:
        for number, level in enumerate(levels):
            per_cm = _rational(_UM_PER_CM / (Fraction(repr(float(stride_um))) * 2**number))
            writer.write(
                level,
                photometric="palette",
                colormap=257 * PALETTE.T.astype(np.uint16),
                tile=(_TILE_PX, _TILE_PX),
                compression="deflate",
                subfiletype=int(number > 0),
                resolution=(per_cm, per_cm),
                resolutionunit="CENTIMETER",
                description=None if number else about,
                metadata=None,
                software=False,
            )


def read_map(path: Path) -> tuple[NDArray[np.float32], float]:
    """The map that `write_map` wrote, each value to within 1/508, and the side of a cell in µm.

    Returns:
        Shape (rows, columns), float32, NaN where nothing was looked at; the stride.

    Raises:
        InputError: the file is missing or is not such a map.
    """
    try:
        with tifffile.TiffFile(path) as file:
            page = file.pages.first
            kind = page.photometric, page.dtype, page.resolutionunit
            if kind != (tifffile.PHOTOMETRIC.PALETTE, np.uint8, tifffile.RESUNIT.CENTIMETER):
                raise InputError("it is not 8-bit palette with pixels per centimeter")
            stride_um = float(_UM_PER_CM / Fraction(*page.tags["XResolution"].value))
            values = page.asarray()
    except Exception as error:  # Of a damaged file tifffile raises what its decoders and tables do.
        what = " ".join(str(error).split())
        raise InputError(f"{path}: not a map of values ({what}); run the heatmap stage again") from None
    probabilities = (values.astype(np.float32) - 1) / _STEPS
    return np.where(values > 0, probabilities, np.float32(np.nan)), stride_um


def _levels(raster: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """The raster and its halves, rounded up, down to one that fits into a tile."""
    yield raster
    while max(raster.shape) > _TILE_PX:
        raster = _halved(raster)
        yield raster


def _halved(raster: NDArray[np.float32]) -> NDArray[np.float32]:
    """Means over 2 x 2 of what is not NaN; NaN where all is."""
    rows, columns = (-(-side // 2) for side in raster.shape)
    whole = np.full((2 * rows, 2 * columns), np.nan, np.float64)
    whole[: raster.shape[0], : raster.shape[1]] = raster
    blocks = whole.reshape(rows, 2, columns, 2)
    seen = (~np.isnan(blocks)).sum((1, 3))
    means = np.nansum(blocks, (1, 3)) / np.maximum(seen, 1)
    return np.where(seen, means, np.nan).astype(np.float32)


def _rational(value: Fraction) -> tuple[int, int]:
    """Numerator and denominator of 32 bits each: exactly, where that is possible."""
    near = value.limit_denominator(min(_MOST, int(_MOST / value)))
    return near.numerator, near.denominator
