"""Color features of patches: mean color, histograms of colors and of stains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histo_monai.transforms.operations.hed import DARKEST, RGB_FROM_HED
from histo_monai.utils.process.products import product

MEAN, COLORS, STAINS, BOTH = "mean_color", "color_histogram", "stain_histograms", "color_and_stain_histograms"
"""Names of the features."""

NUM_DENSITIES = 32
DENSITY_STEP = 0.05
"""A stain's histogram has 32 steps of 0.05 optical density (base 10): 0 to 1.6; others count in the end steps."""

_BITS = 3
"""A color histogram has 2 ** 3 steps per channel: 512 colors."""
_STAINS_FROM_DENSITY = np.linalg.inv(np.array(RGB_FROM_HED))[:, :2].T
"""Densities of R, G, B -> of hematoxylin and eosin; Shape (2, 3)."""
_DENSITY_OF = -np.log10(np.maximum(np.arange(256) / 255, DARKEST))
"""Optical density of each gray level; Shape (256,)."""


def color_features(loader: Iterable[Any]) -> dict[str, NDArray[np.float64]]:
    """Color features of every patch, in the order of the loader, from one pass.

    Histograms are square roots of pixel fractions, so that Euclidean distance is Hellinger's. Stains are unmixed by the
    matrix of Ruifrok & Johnston 2001 (`transforms.operations.hed`).

    Args:
        loader: batches of (pixels (n, 1, 3, P, P) uint8, anything); at least one.

    Returns:
        `MEAN`: Shape (n, 3), 0..1; `COLORS`: Shape (n, 512); `STAINS`: Shape (n, 64), hematoxylin first; `BOTH`:
        Shape (n, 576), `COLORS` and `STAINS` side by side.
    """
    of_patches = [
        _features(pixels) for patches, _ in loader for pixels in patches.squeeze(1).flatten(2).numpy()
    ]
    mean, colors, stains = (np.stack(features) for features in zip(*of_patches, strict=True))
    return {MEAN: mean, COLORS: colors, STAINS: stains, BOTH: np.hstack([colors, stains])}


def _features(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.float64], ...]:
    """Mean, colors and stains of one patch; (3, pixels) -> (3,), (512,), (64,)."""
    red, green, blue = (pixels >> (8 - _BITS)).astype(np.intp)
    colors = _root_fractions((red << (2 * _BITS)) + (green << _BITS) + blue, 1 << (3 * _BITS))
    densities = product(_STAINS_FROM_DENSITY, _DENSITY_OF[pixels])
    steps = np.clip(np.floor(densities / DENSITY_STEP), 0, NUM_DENSITIES - 1).astype(np.intp)
    stains = np.concatenate([_root_fractions(of_stain, NUM_DENSITIES) for of_stain in steps])
    return pixels.mean(axis=1) / 255, colors, stains


def _root_fractions(steps: NDArray[np.intp], num: int) -> NDArray[np.float64]:
    return np.sqrt(np.bincount(steps, minlength=num) / len(steps))
