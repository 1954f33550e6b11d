"""Standardized features of one depth, or of all depths side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Depths = Mapping[str, NDArray]
"""Name of a depth -> float32 features, Shape (N, D_k)."""
CONCATENATED = "all depths"
COLOR_NAME = "color"
"""Depth that is used beside the others alone. It sorts before the names of all others."""


@dataclass(frozen=True)
class Standardization:
    """(x - mean) * factor of some depths, side by side.

    Attributes:
        names: names of the depths.
        columns: their columns among all depths side by side, in the order of names. Shape (D,).
        mean: mean over unlabeled training patches, Shape (D,).
        factor: 1 / standard deviation over these patches, 1 for a deviation of 0. For several depths also divided by
            sqrt(D_k / mean D_k), so that all depths have equal weight. Shape (D,).
    """

    names: tuple[str, ...]
    columns: NDArray[np.int64]
    mean: NDArray[np.float64]
    factor: NDArray[np.float64]

    def of(self, features: Depths) -> NDArray[np.float64]:
        """Standardized features, Shape (n, D)."""
        rows = np.concatenate([features[name] for name in self.names], axis=1)
        return np.asarray((rows - self.mean) * self.factor)


def standardizations(unlabeled: Depths, depths: str) -> dict[str, Standardization]:
    """Standardizations of each depth, of all depths side by side, or both.

    Args:
        unlabeled: features of all training patches, labeled or not.
        depths: "each", "concatenated" or "both"; a single depth has one standardization. Color has none of its own.
    """
    names = sorted(unlabeled)
    sizes = np.array([unlabeled[name].shape[1] for name in names])
    ends = np.cumsum(sizes)
    each = {}
    for name, size, end in zip(names, sizes, ends, strict=True):
        rows = np.asarray(unlabeled[name], np.float64)
        deviation = rows.std(axis=0)
        factor = 1 / np.where(deviation > 0, deviation, 1.0)
        each[name] = Standardization((name,), np.arange(end - size, end), rows.mean(axis=0), factor)
    if len(names) == 1:
        return each
    scales = np.sqrt(sizes.mean() / sizes)
    every = Standardization(
        tuple(names),
        np.arange(ends[-1]),
        np.concatenate([each[name].mean for name in names]),
        np.concatenate([each[name].factor * scale for name, scale in zip(names, scales, strict=True)]),
    )
    each.pop(COLOR_NAME, None)
    return {
        **(each if depths != "concatenated" else {}),
        **({CONCATENATED: every} if depths != "each" else {}),
    }
