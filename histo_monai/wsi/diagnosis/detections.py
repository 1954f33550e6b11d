"""From a map to what is on it: points of detected lesions, and outlines of the area above a threshold."""

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
"""Measurements of a region: over its cells, and how much of the slide they cover."""


def find_detections(
    heatmap: Heatmap, model: str, *, threshold: float, radius_um: float, smoothing_um: float, label: str
) -> list[Point]:
    """The cells of highest value, none within a radius of a higher one: greedy non-maximum suppression.

    As in Camelyon16's lesion task: the highest cell of the smoothed map is a detection, all within the radius of it
    along both axes are put out, and so on while a cell lies above the threshold. Cells that were not looked at count as
    0 in the smoothing and are never a detection.

    Args:
        model: Whose values.
        threshold: Of the smoothed map; a detection lies above it.
        radius_um: Two detections are farther apart than this along at least one axis, but for less than a cell.
        smoothing_um: Standard deviation of a Gaussian over the map before; 0 for none.

    Returns:
        Highest first; middles of cells in level-0 pixels, with the smoothed map's value as "probability".

    Raises:
        InputError: threshold is outside 0..1, or a length is negative.
    """
    _check(threshold)
    if not min(radius_um, smoothing_um) >= 0:
        raise InputError(
            f"radius_um and smoothing_um must be 0 or more, got {radius_um:g} and {smoothing_um:g}"
        )
    stride_um = heatmap.grid.stride_um
    raster = heatmap.raster(model)
    seen = ~np.isnan(raster)
    # Here and not in MONAI, whose filter does nothing to a map without batch and channel (1.6.1).
    smooth = ndimage.gaussian_filter(np.where(seen, raster, 0), smoothing_um / stride_um, mode="constant")
    with quiet_library(), lasting():  # MONAI loads nvImageCodec, which prints warnings where there is no GPU.
        from monai.transforms import ProbNMS
    suppress = ProbNMS(prob_threshold=threshold, box_size=2 * int(radius_um / stride_um + 1e-6) + 1)
    maxima = suppress(np.where(seen, smooth, 0))
    places = heatmap.grid.centers_yx(np.array([cell for _, *cell in maxima], np.int64).reshape(-1, 2))
    return [
        Point(yx=(float(y), float(x)), label=label, measurements={"probability": float(value)})
        for (y, x), (value, *_) in zip(places, maxima, strict=True)
    ]


def find_regions(heatmap: Heatmap, model: str, *, threshold: float, label: str) -> list[Region]:
    """Outlines of the cells at or above a threshold, in level-0 pixels, exactly along the edges of the cells.

    Cells belong together that share a side. What the cells of the last row and column cover beyond the slide is cut
    off.

    Args:
        model: Whose values.
        threshold: 0..1.
        label: Of the regions; with their number also their name.

    Returns:
        By highest value and then by area, the greatest first; each with `MEASURES`.

    Raises:
        InputError: threshold is outside 0..1.
    """
    _check(threshold)
    raster = heatmap.raster(model)
    mask = raster >= threshold  # NaN is not.
    outlines = mask_regions(mask, heatmap.grid.downsample, label=label)
    parts, num = ndimage.label(mask)  # Numbered by their first cell, as the outlines are.
    which = np.arange(1, num + 1)
    measures = (
        ndimage.mean(raster, parts, which),
        ndimage.maximum(raster, parts, which),
        np.round(ndimage.sum_labels(_cell_areas_mm2(heatmap.grid), parts, which), 6),  # To the µm².
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
        raise InputError(f"threshold: expected a probability in 0..1, not {threshold!r}")


def _cell_areas_mm2(grid: Grid) -> NDArray[np.float64]:
    """What each cell covers of the slide, shape `grid.shape`."""
    sides = [
        np.diff(np.minimum(np.arange(num + 1) * grid.downsample, size))
        for num, size in zip(grid.shape, grid.size_yx, strict=True)
    ]
    return np.outer(*sides) * (grid.slide_mpp / 1000) ** 2


def _cut(region: Region, size_yx: tuple[int, int]) -> Region:
    """The region without what lies beyond the slide's lower and right edge; its sides are parallel to these."""
    return replace(
        region,
        exterior_yx=np.minimum(region.exterior_yx, size_yx),
        holes_yx=tuple(np.minimum(hole, size_yx) for hole in region.holes_yx),
    )
