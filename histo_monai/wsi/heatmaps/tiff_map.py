"""Maps as pyramidal palette TIFF, an overlay for slide viewers and an array for programs."""

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
_MOST = 2**32 - 1  # maximum of each half of a TIFF rational


def _palette() -> NDArray[np.uint8]:
    colors = matplotlib.colormaps["RdYlBu_r"](np.linspace(0, 1, _STEPS + 1))[:, :3]
    return np.vstack([np.full((1, 3), 255), np.rint(255 * colors)]).astype(np.uint8)


PALETTE = _palette()
"""Colors of pixel values, (256, 3), uint8, RGB: 0 (white): unmapped; 1 to 255: blue (0.0) over pale yellow to red
(1.0), the colorblind-safe scale RdYlBu of ColorBrewer."""


def encode(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Palette indices of values in 0..1: 0 for NaN, else 1 + 254 times the value, rounded.

    Raises:
        InputError: a value is outside 0..1.
    """
    is_mapped = ~np.isnan(values)
    if not ((values[is_mapped] >= 0) & (values[is_mapped] <= 1)).all():
        low, high = values[is_mapped].min(), values[is_mapped].max()
        raise InputError(f"map: values {low:g}..{high:g}. Fix: give values in 0..1, NaN for unmapped cells")
    return np.where(is_mapped, 1 + np.rint(_STEPS * np.where(is_mapped, values, 0)), 0).astype(np.uint8)


def write_map(
    path: Path, raster: NDArray[np.float32], stride_um: float, bounds_yx: tuple[int, int] = (0, 0)
) -> None:
    """Write a map as a tiled, deflated pyramid of 8-bit palette TIFF; it appears complete or not at all.

    A pixel of the finest level is a cell: the resolution tags state the stride as µm/px, and the upper left corner is
    the corner of the slide's canvas (stated in the description, JSON). A pixel of a coarser level is the mean of its
    mapped 2 x 2 pixels. Equal maps give equal bytes.

    Args:
        path: its folder is created.
        raster: (rows, columns), float32, 0..1, NaN for unmapped cells.
        stride_um: side of a cell, µm.
        bounds_yx: corner of the slide's bounds, level-0 pixels.

    Raises:
        InputError: the raster is not 2-D or has values outside 0..1, or the stride is not positive.
    """
    if raster.ndim != 2 or not raster.size or not stride_um > 0:
        raise InputError(
            f"map: shape {raster.shape}, stride {stride_um} µm. Fix: give (rows, columns) and a positive stride"
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
    """Map from a file of `write_map`, (rows, columns), float32, NaN for unmapped cells, within 1/508; stride, µm.

    Raises:
        InputError: the file is missing or no such map.
    """
    try:
        with tifffile.TiffFile(path) as file:
            page = file.pages.first
            kind = page.photometric, page.dtype, page.resolutionunit
            if kind != (tifffile.PHOTOMETRIC.PALETTE, np.uint8, tifffile.RESUNIT.CENTIMETER):
                raise InputError("no 8-bit palette, or no pixels per centimeter")
            stride_um = float(_UM_PER_CM / Fraction(*page.tags["XResolution"].value))
            values = page.asarray()
    except Exception as error:  # tifffile raises errors of many kinds for a damaged file
        what = " ".join(str(error).split())
        raise InputError(f"{path}: not a map ({what}). Fix: run the stage heatmap again") from None
    probabilities = (values.astype(np.float32) - 1) / _STEPS
    return np.where(values > 0, probabilities, np.float32(np.nan)), stride_um


def _levels(raster: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Raster and its successive halves, down to one tile."""
    yield raster
    while max(raster.shape) > _TILE_PX:
        raster = _halved(raster)
        yield raster


def _halved(raster: NDArray[np.float32]) -> NDArray[np.float32]:
    """Means of the 2 x 2 values without NaN; NaN if all are."""
    rows, columns = (-(-side // 2) for side in raster.shape)
    whole = np.full((2 * rows, 2 * columns), np.nan, np.float64)
    whole[: raster.shape[0], : raster.shape[1]] = raster
    blocks = whole.reshape(rows, 2, columns, 2)
    num_mapped = (~np.isnan(blocks)).sum((1, 3))
    means = np.nansum(blocks, (1, 3)) / np.maximum(num_mapped, 1)
    return np.where(num_mapped, means, np.nan).astype(np.float32)


def _rational(value: Fraction) -> tuple[int, int]:
    """32-bit numerator and denominator, exact if possible."""
    near = value.limit_denominator(min(_MOST, int(_MOST / value)))
    return near.numerator, near.denominator
