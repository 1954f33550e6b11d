"""Standardized features of one depth, or of all depths side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Depths = Mapping[str, NDArray]
"""Name of a depth -> float32 features, Shape (N, D_k)."""
CONCATENATED = "all depths"
WITH_FIELD = "all depths and field"
COLOR_NAME = "color"
"""Depth that is used beside the others alone. It sorts before the names of all others but the field."""
FIELD_NAME = "around"
"""The field around the patch, as a depth: used beside the others alone, but not beside color. It sorts before color."""
BESIDE = {COLOR_NAME, FIELD_NAME}
"""Depths that are no candidates of their own."""


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
    """Standardizations of each depth, of all depths side by side, or both; and of all but color beside the field.

    Args:
        unlabeled: features of all training patches, labeled or not.
        depths: "each", "concatenated" or "both"; a single depth has one standardization. Color and field have none of
            their own.
    """
    names = sorted(unlabeled)
    sizes = {name: unlabeled[name].shape[1] for name in names}
    ends = dict(zip(names, np.cumsum(list(sizes.values())), strict=True))
    each = {}
    for name in names:
        rows = np.asarray(unlabeled[name], np.float64)
        deviation = rows.std(axis=0)
        factor = 1 / np.where(deviation > 0, deviation, 1.0)
        columns = np.arange(ends[name] - sizes[name], ends[name])
        each[name] = Standardization((name,), columns, rows.mean(axis=0), factor)

    def together(*chosen: str) -> Standardization:
        mean_size = np.mean([sizes[name] for name in chosen])
        return Standardization(
            chosen,
            np.concatenate([each[name].columns for name in chosen]),
            np.concatenate([each[name].mean for name in chosen]),
            np.concatenate([each[name].factor * np.sqrt(mean_size / sizes[name]) for name in chosen]),
        )

    concatenated = {}
    if len(of_patch := [name for name in names if name != FIELD_NAME]) > 1:
        concatenated[CONCATENATED] = together(*of_patch)
    if FIELD_NAME in names:
        concatenated[WITH_FIELD] = together(*(name for name in names if name != COLOR_NAME))
    alone = {name: made for name, made in each.items() if name not in BESIDE}
    if not concatenated:
        return alone
    return {
        **(alone if depths != "concatenated" else {}),
        **(concatenated if depths != "each" else {}),
    }
