"""Outlines of lesions: random polygons, used for rendering and written as annotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.data.simulated.raster.lattice import F32, Grid

Polygon = NDArray[np.float64]
_SHIFT_BITS = 6  # sub-pixel digits of cv2.fillPoly


@dataclass(frozen=True)
class Lesion:
    """A malignant region.

    Attributes:
        exterior: Vertices (y, x) in µm from the slide's top left corner, shape (n, 2), not repeated at the end.
        holes: Outlines of normal tissue inside, in the format of `exterior`.
    """

    exterior: Polygon
    holes: tuple[Polygon, ...] = ()

    @property
    def diameter_um(self) -> float:
        """Largest distance between two vertices of the exterior."""
        steps = self.exterior[:, None] - self.exterior[None]
        return float(np.sqrt((steps**2).sum(-1)).max())


def star_outline(rng: np.random.Generator, center_um: tuple[float, float], radius_um: float) -> Polygon:
    """A closed, simple, irregular outline around a center; shape (n, 2), (y, x) µm."""
    count = int(np.clip(2 * np.pi * radius_um / 12, 24, 400))
    theta = np.arange(count) * (2 * np.pi / count)
    radius = np.ones(count)
    for k in range(2, 14):
        radius += rng.normal(0, 0.20) / k**0.9 * np.cos(k * theta + rng.uniform(0, 2 * np.pi))
    radius = radius_um * np.clip(radius, 0.45, 1.6)
    return np.stack([center_um[0] + radius * np.sin(theta), center_um[1] + radius * np.cos(theta)], axis=1)


def rasterize(lesions: Sequence[Lesion], step_um: float, height: int, width: int) -> NDArray[np.bool_]:
    """The malignant area on a raster of `step_um`; shape (height, width), True inside exteriors and outside holes."""
    mask = np.zeros((height, width), np.uint8)
    for lesion in lesions:
        _fill(mask, lesion.exterior, step_um, 1)
        for hole in lesion.holes:
            _fill(mask, hole, step_um, 0)
    return mask.astype(bool)


def _fill(mask: NDArray[np.uint8], outline: Polygon, step_um: float, value: int) -> None:
    # cv2 counts from the center of the first pixel, this package from its edge.
    points = np.rint((outline[:, ::-1] / step_um - 0.5) * 2**_SHIFT_BITS).astype(np.int32)
    cv2.fillPoly(mask, [points], value, shift=_SHIFT_BITS)


class DepthMap:
    """Signed distance to the border of a set of lesions, µm, positive inside, stored at a coarse step.

    Args:
        size_um: Height and width of the slide.
        step_um: Step of the stored raster.
    """

    def __init__(self, lesions: Sequence[Lesion], size_um: tuple[float, float], step_um: float = 4.0) -> None:
        self._step = step_um
        height, width = (int(np.ceil(s / step_um)) + 1 for s in size_um)
        inside = rasterize(lesions, step_um, height, width).astype(np.uint8)
        outward = cv2.distanceTransform(1 - inside, cv2.DIST_L2, 5)
        inward = cv2.distanceTransform(inside, cv2.DIST_L2, 5)
        # The border runs between inner and outer pixels: half a step belongs to each.
        depth = np.where(inside > 0, inward - 0.5, 0.5 - outward) * step_um
        self._depth: F32 = np.clip(depth, -2000, 2000).astype(np.float32)

    def at(self, grid: Grid) -> F32:
        """Depth on another raster, bilinear; shape (grid.height, grid.width), float32."""
        x = np.broadcast_to(grid.columns_um()[None, :] / self._step - 0.5, (grid.height, grid.width))
        y = np.broadcast_to(grid.rows_um()[:, None] / self._step - 0.5, (grid.height, grid.width))
        return np.asarray(
            cv2.remap(
                self._depth,
                x.astype(np.float32),
                y.astype(np.float32),
                cv2.INTER_LINEAR,
                borderMode=cv2.BORDER_CONSTANT,
                borderValue=-2000,
            )
        )
