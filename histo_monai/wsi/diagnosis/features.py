"""33 features of a slide's probability map, after Wang et al. 2016 (docs/slide_features.md)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from skimage import measure

from histo_monai.utils.errors import InputError
from histo_monai.wsi.heatmaps.heatmap import Heatmap

THRESHOLDS = (0.5, 0.9)
"""Least probabilities of a tumor cell; names of their features end in `_t50` and `_t90`."""

_OF_CELLS = {
    "area_mm2": "tissue in these cells, mm²",
    "tissue_share": "their tissue over the tissue of the map, 0..1",
    "num_regions": "regions that they form, cells meeting at a side or a corner, count",
    "mean_probability": "mean of their values, weighted by tissue, 0..1",
}
_OF_LARGEST = {
    "largest_area_mm2": "tissue in the largest region, mm²",
    "largest_major_axis_mm": "long axis of the ellipse with the second moments of the largest region, mm",
    "largest_minor_axis_mm": "short axis of that ellipse, mm",
    "largest_eccentricity": "eccentricity of that ellipse, 0 (round) to 1 (a line)",
    "largest_extent": "cells of the largest region over those of its upright bounding box, 0..1",
    "largest_solidity": "cells of the largest region over those of its convex hull, 0..1",
    "largest_perimeter_mm": "length of its border, Crofton's formula in four directions, mm",
    "largest_mean_probability": "mean of its values, weighted by tissue, 0..1",
    "largest_max_probability": "its highest value, 0..1",
}
_OF_MAP = {
    "max_probability": "highest value of the map, 0..1",
    "mean_probability": "mean of the map, weighted by tissue as all that follow, 0..1",
    "sd_probability": "standard deviation, 0..0.5",
    "skewness_probability": "third central moment over the third power of the standard deviation, no unit",
    "median_probability": "value that half of the tissue does not exceed, 0..1",
    "q90_probability": "value that 90 % of the tissue does not exceed, 0..1",
    "q99_probability": "value that 99 % of the tissue does not exceed, 0..1",
}
_QUANTILES = (0.5, 0.9, 0.99)
_NO_SPREAD = 1e-6  # Largest standard deviation of equal float32 values, from rounding.


def _named(threshold: float, name: str) -> str:
    return f"{name}_t{round(100 * threshold)}"


FEATURES: Mapping[str, str] = {
    **{
        _named(threshold, name): f"cells of {threshold:g} and above: {description}"
        for threshold in THRESHOLDS
        for name, description in (_OF_CELLS | _OF_LARGEST).items()
    },
    **_OF_MAP,
}
"""Name of each feature -> description with unit."""


def slide_features(heatmap: Heatmap, model: str) -> dict[str, float]:
    """Features of one model's map, after Wang et al. 2016 (arXiv 1606.05718).

    Cells without tissue are ignored. Areas and means are weighted by the tissue fraction of each cell. Shapes are of
    whole square cells, so the axes of a rectangle do not depend on the stride. The largest region has the most tissue;
    ties select the higher mean. If no cell reaches a threshold, the features of that threshold are 0. Without tissue
    all features are 0. The skewness of a constant map is 0.

    Args:
        model: column of the map.

    Returns:
        The names of `FEATURES` in their order; all values are finite.

    Raises:
        InputError: the map has no such model, or a value outside 0..1.
    """
    if model not in heatmap.values:
        known = f"name one of {', '.join(heatmap.values)}" if heatmap.values else "map the slide with a model"
        raise InputError(f"map: no model {model!r}. Fix: {known}")
    has_tissue = heatmap.tissue > 0
    cells = heatmap.cells[has_tissue]
    tissue, values = (a[has_tissue].astype(np.float64) for a in (heatmap.tissue, heatmap.values[model]))
    bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(bad):
        row, column = cells[bad[0]]
        raise InputError(
            f"{model}: cell ({row}, {column}) has value {values[bad[0]]}. Fix: give values in 0..1"
        )
    features = dict.fromkeys(FEATURES, 0.0)
    if not len(values):
        return features
    for threshold in THRESHOLDS:
        above = values >= np.float32(threshold)
        if above.any():
            region = _regions(cells[above], tissue[above], values[above], heatmap.grid.stride_um / 1000)
            region["tissue_share"] = tissue[above].sum() / tissue.sum()
            features |= {_named(threshold, name): float(value) for name, value in region.items()}
    return features | _of_map(tissue, values)


def _of_map(tissue: NDArray[np.float64], values: NDArray[np.float64]) -> dict[str, float]:
    mean = np.average(values, weights=tissue)
    sd = np.sqrt(np.average((values - mean) ** 2, weights=tissue))
    third = np.average((values - mean) ** 3, weights=tissue)
    skewness = third / sd**3 if sd > _NO_SPREAD else 0.0
    quantiles = np.quantile(values, _QUANTILES, weights=tissue, method="inverted_cdf")
    numbers = (values.max(), mean, sd, skewness, *quantiles)
    return {name: float(number) for name, number in zip(_OF_MAP, numbers, strict=True)}


def _regions(
    cells: NDArray[np.int64], tissue: NDArray[np.float64], values: NDArray[np.float64], side_mm: float
) -> dict[str, float]:
    """Values of `_OF_CELLS` without `tissue_share`, and of `_OF_LARGEST`."""
    places = tuple((cells - cells.min(axis=0)).T)
    mask = np.zeros(cells.max(axis=0) - cells.min(axis=0) + 1, bool)
    mask[places] = True
    labels = measure.label(mask, connectivity=2)
    region_of_cell = labels[places]
    area = np.bincount(region_of_cell, tissue)
    total = np.bincount(region_of_cell, tissue * values)
    mean = np.divide(total, area, out=np.zeros_like(area), where=area > 0)
    largest = int(np.lexsort((mean, area))[-1])
    shape = measure.regionprops((labels == largest).astype(np.uint8), spacing=(side_mm, side_mm))[0]
    # Second moments of the cells' centers, and of a square about its own center.
    moments = np.asarray(shape.inertia_tensor_eigvals) + side_mm**2 / 12
    major, minor = 4 * np.sqrt(moments)
    return {
        "area_mm2": area.sum() * side_mm**2,
        "num_regions": len(area) - 1,
        "mean_probability": total.sum() / area.sum(),
        "largest_area_mm2": area[largest] * side_mm**2,
        "largest_major_axis_mm": major,
        "largest_minor_axis_mm": minor,
        "largest_eccentricity": np.sqrt(max(0.0, 1 - moments[1] / moments[0])),
        "largest_extent": shape.extent,
        "largest_solidity": shape.solidity,
        "largest_perimeter_mm": shape.perimeter_crofton,
        "largest_mean_probability": mean[largest],
        "largest_max_probability": values[region_of_cell == largest].max(),
    }
