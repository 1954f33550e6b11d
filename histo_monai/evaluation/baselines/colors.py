"""Color features of patches: mean color, histograms of colors and of stains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histo_monai.models.encoders.color import stain_histograms

MEAN, COLORS, STAINS, BOTH = "mean_color", "color_histogram", "stain_histograms", "color_and_stain_histograms"
"""Names of the features."""

_BITS = 3
"""A color histogram has 2 ** 3 steps per channel: 512 colors."""


def color_features(loader: Iterable[Any]) -> dict[str, NDArray[np.float64]]:
    """Color features of every patch, in the order of the loader, from one pass.

    Histograms are square roots of pixel fractions, so that Euclidean distance is Hellinger's.

    Args:
        loader: batches of (pixels (n, 1, 3, P, P) uint8, anything); at least one.

    Returns:
        `MEAN`: Shape (n, 3), 0..1; `COLORS`: Shape (n, 512); `STAINS`: Shape (n, 64), of `stain_histograms`; `BOTH`:
        Shape (n, 576), `COLORS` and `STAINS` side by side.
    """
    of_patches, of_batches = [], []
    for patches, _ in loader:
        of_patches += [_features(pixels) for pixels in patches.squeeze(1).flatten(2).numpy()]
        of_batches.append(stain_histograms(patches.squeeze(1).long()).numpy())
    mean, colors = (np.stack(features) for features in zip(*of_patches, strict=True))
    stains = np.concatenate(of_batches)
    return {MEAN: mean, COLORS: colors, STAINS: stains, BOTH: np.hstack([colors, stains])}


def _features(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.float64], ...]:
    """Mean and colors of one patch; (3, pixels) -> (3,), (512,)."""
    red, green, blue = (pixels >> (8 - _BITS)).astype(np.intp)
    steps = (red << (2 * _BITS)) + (green << _BITS) + blue
    colors = np.sqrt(np.bincount(steps, minlength=1 << (3 * _BITS)) / len(steps))
    return pixels.mean(axis=1) / 255, colors
