"""Maps of several classes in one picture: each cell has the color of its most probable class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.annotations import Region, class_color, rasterize_regions
from histo_monai.wsi.heatmaps.heatmap import Heatmap, column_of

Pixels = NDArray[np.uint8]

UNKNOWN = 190
"""Gray of areas without outlines."""
_FAINTEST, _STRONGEST = 0.25, 0.65
"""Opacity at equal probabilities, and at probability 1."""


def winners(
    heatmap: Heatmap, model: str, classes: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Most probable class of each cell, `grid.shape`, and its probability; -1 and 0 for unmapped cells."""
    stack = np.stack([heatmap.raster(column_of(model, label)) for label in classes])
    is_mapped = ~np.isnan(stack[0])
    best = np.where(is_mapped, np.argmax(np.nan_to_num(stack), axis=0), -1)
    return best, np.where(is_mapped, np.nan_to_num(stack).max(axis=0), 0).astype(np.float32)


def blend_winners(
    thumbnail: Pixels, thumbnail_mpp: float, heatmap: Heatmap, model: str, classes: Sequence[str]
) -> Pixels:
    """Thumbnail with each cell in its class's QuPath color, more opaque for higher probability.

    Args:
        thumbnail: whole slide, (h, w, 3), uint8.
        thumbnail_mpp: µm/px.
        heatmap: of the slide.
        model: column of the map.
        classes: two or more mapped classes.
    """
    grid = heatmap.grid
    best, probability = winners(heatmap, model, classes)
    least = 1 / len(classes)
    sure = np.clip((probability - least) / (1 - least), 0, 1)
    opacity = np.where(best >= 0, _FAINTEST + (_STRONGEST - _FAINTEST) * sure, 0)
    colors = np.array([class_color(label) for label in classes], np.float32)
    rows, columns = (
        np.minimum(((np.arange(side) + 0.5) * thumbnail_mpp / grid.stride_um).astype(np.int64), num - 1)
        for side, num in zip(thumbnail.shape[:2], grid.shape, strict=True)
    )
    picture = np.empty_like(thumbnail)
    for number, row in enumerate(
        rows
    ):  # Line by line, so that nothing of float stands beside a large picture.
        alpha = opacity[row, columns][:, None]
        picture[number] = np.rint(thumbnail[number] * (1 - alpha) + colors[best[row, columns]] * alpha)
    return picture


def reference_picture(
    regions: Sequence[Region], size_yx: tuple[int, int], slide_mpp: float, thumbnail_mpp: float
) -> Pixels:
    """Outlined regions in class colors on gray (unknown), (h, w, 3), uint8.

    Args:
        regions: in level-0 pixels; later ones cover earlier ones.
        size_yx: height and width of the thumbnail, px.
        slide_mpp: µm per level-0 pixel.
        thumbnail_mpp: µm/px of the thumbnail.
    """
    picture = np.full((*size_yx, 3), UNKNOWN, np.uint8)
    for label in dict.fromkeys(region.label for region in regions):
        of_class = [region for region in regions if region.label == label]
        mask = rasterize_regions(of_class, downsample=thumbnail_mpp / slide_mpp, shape=size_yx)
        picture[mask] = class_color(label)
    return picture
