"""What is marked on a slide: areas with holes, and points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Region:
    """One area with its own holes.

    Attributes:
        exterior_yx: Vertices, shape (n, 2), float64, (y, x) in level-0 pixels; the last is joined to the first.
        holes_yx: Outlines of what is left out of it, likewise. Another region may lie in them.
        label: Its class, empty where it is unclassified.
        name: Of this one region, mostly empty.
        measurements: Finite numbers by their name.
    """

    exterior_yx: NDArray[np.float64]
    holes_yx: tuple[NDArray[np.float64], ...] = ()
    label: str = ""
    name: str = ""
    measurements: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """One place.

    Attributes:
        yx: (y, x) in continuous level-0 pixels.
        label: Its class, empty where it is unclassified.
        measurements: Finite numbers by their name.
    """

    yx: tuple[float, float]
    label: str = ""
    measurements: Mapping[str, float] = field(default_factory=dict)
