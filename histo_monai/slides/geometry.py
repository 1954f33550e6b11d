"""Positions of patches on a slide: boxes, levels and downsamples. Pure arithmetic, no files.

Coordinates are continuous level-0 pixels in the order y, x, with the pixel-edge convention: pixel ``i``
covers ``[i, i + 1)``, its middle is ``i + 0.5``, and the slide covers ``[0, height) x [0, width)``. Point
``c`` of level 0 lies at ``c / downsample`` of a coarser level, without half-pixel terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from histo_monai.utils.errors import InputError

MAX_UPSAMPLING = 1.1
"""Largest ratio of level-0 µm/px to a box's µm/px: upsampling invents no detail."""

LEVEL_TOLERANCE = 0.02
"""Largest relative difference of a level from the requested µm/px (0.2528 is read as 0.25)."""


@dataclass(frozen=True, slots=True)
class Box:
    """A square field of a slide, given by its center and its resolution.

    Attributes:
        center_yx: Center, continuous level-0 pixels, (y, x).
        side_px: Side of the patch to read, in pixels of ``mpp``.
        mpp: Resolution of the patch, µm per pixel.

    Raises:
        InputError: The side or the resolution is not positive, or the center is not finite.
    """

    center_yx: tuple[float, float]
    side_px: int
    mpp: float

    def __post_init__(self) -> None:
        if self.side_px < 1:
            raise InputError(f"box: side_px is {self.side_px}. Fix: set it to at least 1.")
        if not (math.isfinite(self.mpp) and self.mpp > 0):
            raise InputError(f"box: mpp is {self.mpp}. Fix: set a positive number of µm per pixel.")
        if not all(math.isfinite(value) for value in self.center_yx):
            raise InputError(f"box: center_yx is {self.center_yx}. Fix: set finite level-0 pixels.")

    @property
    def side_um(self) -> float:
        """Side of the field in µm."""
        return self.side_px * self.mpp


def concentric_boxes(center_yx: tuple[float, float], side_px: int, mpps: Sequence[float]) -> tuple[Box, ...]:
    """Boxes of one side in pixels around one center, one per resolution, in the given order."""
    return tuple(Box(center_yx, side_px, mpp) for mpp in mpps)


def choose_level(level_mpps: Sequence[float], mpp: float) -> int:
    """The level to read a patch of ``mpp`` from: the coarsest level that is not coarser than ``mpp``.

    A level within `LEVEL_TOLERANCE` of ``mpp`` counts as equal. Level 0 serves a box up to `MAX_UPSAMPLING`
    finer than itself.

    Args:
        level_mpps: Resolution of each level, finest first, µm per pixel.

    Raises:
        InputError: The box is finer than the slide by more than 10 %.
    """
    if level_mpps[0] > mpp * MAX_UPSAMPLING:
        raise InputError(
            f"{mpp:g} µm/px requested, finer than the slide's own {level_mpps[0]:g} µm/px by more than 10 %. "
            f"Fix: request {level_mpps[0]:g} or coarser."
        )
    fits = [i for i, level_mpp in enumerate(level_mpps) if level_mpp <= mpp * (1 + LEVEL_TOLERANCE)]
    return max(fits, key=lambda i: level_mpps[i], default=0)


def level_downsample(
    size_yx: tuple[int, int], level_size_yx: tuple[int, int], tile_yx: tuple[int, int] | None = None
) -> float:
    """Level-0 pixels per pixel of a level, from the sizes alone.

    Writers halve a slide and round the size (4443 -> 2221), or pad it to whole tiles (Camelyon16). The ratio of the
    sizes (2.0005) is then wrong by a pixel or more at the far edge. The result is the nominal whole number where
    rounding by less than one pixel, or padding of a power of two to whole tiles, explains both axes; else the ratio
    along the longer axis, which is the more exact.

    Args:
        tile_yx: Height and width of the level's tiles, if known.
    """
    longer = 0 if size_yx[0] >= size_yx[1] else 1
    ratio = size_yx[longer] / level_size_yx[longer]
    axes = list(zip(size_yx, level_size_yx, strict=True))
    for nominal in {max(1, math.floor(ratio)), math.ceil(ratio)}:
        if all(abs(full / nominal - part) < 1 for full, part in axes):
            return float(nominal)
    if tile_yx is not None:
        power = round(math.log2(ratio))
        for nominal in (2**power, 2 ** (power + 1)):
            if all(
                _is_padded(full / nominal, part, tile)
                for (full, part), tile in zip(axes, tile_yx, strict=True)
            ):
                return float(nominal)
    return ratio


def _is_padded(content: float, padded: int, tile: int) -> bool:
    return tile > 0 and padded % tile == 0 and 0 <= padded - content < tile
