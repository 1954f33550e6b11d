"""Histograms of the stains of a patch: color as one more depth of an encoder."""

from __future__ import annotations

import numpy as np
import torch

from histo_monai.utils.stains import DARKEST, RGB_FROM_HED

NUM_DENSITIES = 32
DENSITY_STEP = 0.05
"""A stain's histogram has 32 steps of 0.05 optical density (base 10): 0 to 1.6; others count in the end steps."""
NUM_FEATURES = 2 * NUM_DENSITIES

_STAINS_FROM_DENSITY = np.linalg.inv(np.array(RGB_FROM_HED))[:, :2].T
_DENSITY_OF = -np.log10(np.maximum(np.arange(256) / 255, DARKEST))
_STAINS_OF = torch.from_numpy(_STAINS_FROM_DENSITY[:, :, None] * _DENSITY_OF)
"""Optical density of hematoxylin and eosin that each gray level of R, G and B adds; Shape (2, 3, 256), float64: a pixel
changes its step with the last digits of float32."""


def stain_histograms(levels: torch.Tensor) -> torch.Tensor:
    """Square roots of the fractions of pixels at each density, so that Euclidean distance is Hellinger's.

    Stains are unmixed by the matrix of Ruifrok & Johnston 2001.

    Args:
        levels: gray levels of R, G and B, int64, 0..255; Shape (n, 3, H, W).

    Returns:
        Shape (n, 64), float64, hematoxylin first.
    """
    stains = _STAINS_OF.to(levels.device)
    red, green, blue = (stains[:, number][:, levels[:, number].flatten(1)] for number in range(3))
    steps = ((red + green + blue) / DENSITY_STEP).floor().clamp(0, NUM_DENSITIES - 1)
    fractions = [(steps == number).double().mean(dim=2) for number in range(NUM_DENSITIES)]
    return torch.stack(fractions, dim=2).sqrt().transpose(0, 1).flatten(1)
