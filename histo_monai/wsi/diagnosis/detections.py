"""Lesion detections (points) and regions above a threshold (outlines) of a map."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from histo_monai.slides.annotations import Point, Region, mask_regions
from histo_monai.slides.tiles.grid import Grid
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.garbage import lasting
from histo_monai.utils.process.quiet import quiet_library
from histo_monai.wsi.heatmaps.heatmap import Heatmap

MEASURES = ("mean probability", "max probability", "area mm^2")
"""Measurements of a region: values of its cells, and its area."""


def find_detections(
    heatmap: Heatmap, model: str, *, threshold: float, radius_um: float, smoothing_um: float, label: str
) -> list[Point]:
    """Local maxima of the smoothed map as points, highest first: greedy non-maximum suppression as in Camelyon16.

    The highest cell is a detection; cells within the radius along both axes are removed; and so on above the threshold.
    Unmapped cells count as 0 in the smoothing and are never detections.

    Args:
        model: column of the map.
        threshold: minimum of the smoothed map, exclusive.
        radius_um: minimum distance of two detections along at least one axis, rounded to cells.
        smoothing_um: standard deviation of the Gaussian; 0 for none.

    Returns:
        Cell centers in level-0 pixels, with the smoothed value as "probability".

    Raises:
        InputError: threshold is outside 0..1, or a length is negative.
    """
    _check(threshold)
    if not min(radius_um, smoothing_um) >= 0:
        raise InputError(f"radius_um, smoothing_um: {radius_um:g}, {smoothing_um:g}. Fix: give 0 or more")
    stride_um = heatmap.grid.stride_um
    raster = heatmap.raster(model)
    is_mapped = ~np.isnan(raster)
    # MONAI's filter (1.6.1) does not change a map without batch and channel.
    smooth = ndimage.gaussian_filter(
        np.where(is_mapped, raster, 0), smoothing_um / stride_um, mode="constant"
    )
    with quiet_library(), lasting():  # MONAI loads nvImageCodec, which prints warnings where there is no GPU.
        from monai.transforms import ProbNMS
    suppress = ProbNMS(prob_threshold=threshold, box_size=2 * int(radius_um / stride_um + 1e-6) + 1)
    maxima = suppress(np.where(is_mapped, smooth, 0))
    places = heatmap.grid.centers_yx(np.array([cell for _, *cell in maxima], np.int64).reshape(-1, 2))
    return [
        Point(yx=(float(y), float(x)), label=label, measurements={"probability": float(value)})
        for (y, x), (value, *_) in zip(places, maxima, strict=True)
    ]


def find_regions(heatmap: Heatmap, model: str, *, threshold: float, label: str) -> list[Region]:
    """Outlines of connected cells at or above a threshold, along cell edges, in level-0 pixels.

    Cells with a common side are connected. Outlines are clipped to the slide.

    Args:
        model: column of the map.
        threshold: 0..1.
        label: class of the regions, and with a number their name.

    Returns:
        Regions with `MEASURES`, by descending maximum, then area.

    Raises:
        InputError: threshold is outside 0..1.
    """
    _check(threshold)
    raster = heatmap.raster(model)
    mask = raster >= threshold  # NaN compares as False
    outlines = mask_regions(mask, heatmap.grid.downsample, label=label)
    parts, num = ndimage.label(mask)  # numbered by first cell, like the outlines
    which = np.arange(1, num + 1)
    measures = (
        ndimage.mean(raster, parts, which),
        ndimage.maximum(raster, parts, which),
        np.round(ndimage.sum_labels(_cell_areas_mm2(heatmap.grid), parts, which), 6),  # rounded to 1 µm²
    )
    regions = [
        replace(
            _cut(outline, heatmap.grid.size_yx),
            measurements=dict(zip(MEASURES, map(float, values), strict=True)),
        )
        for outline, *values in zip(outlines, *measures, strict=True)
    ]
    regions.sort(key=lambda region: tuple(-region.measurements[n] for n in MEASURES[1:]))
    return [replace(region, name=f"{label} {number}") for number, region in enumerate(regions, 1)]


def _check(threshold: float) -> None:
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold: {threshold!r} is no probability. Fix: give a number in 0..1")


def _cell_areas_mm2(grid: Grid) -> NDArray[np.float64]:
    """Slide area of each cell, mm², `grid.shape`."""
    sides = [
        np.diff(np.minimum(np.arange(num + 1) * grid.downsample, size))
        for num, size in zip(grid.shape, grid.size_yx, strict=True)
    ]
    return np.outer(*sides) * (grid.slide_mpp / 1000) ** 2


def _cut(region: Region, size_yx: tuple[int, int]) -> Region:
    """Region clipped at the slide's lower and right edge."""
    return replace(
        region,
        exterior_yx=np.minimum(region.exterior_yx, size_yx),
        holes_yx=tuple(np.minimum(hole, size_yx) for hole in region.holes_yx),
    )
