"""A slide at the resolutions of its levels and at others: what they are, and rectangles read at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides import Box, Slide, SlideError
from histo_monai.utils.errors import InputError

_MAX_SIDE_PX = 4096
"""Of the squares of a level that a large rectangle is put together of: 50 MB each."""


@dataclass(frozen=True)
class Level:
    """A resolution at which a slide is read, whether its file has it or not.

    Attributes:
        mpp: µm per pixel.
        downsample: Level-0 pixels per pixel.
        size_yx: Height and width of the slide at it, pixels.
    """

    mpp: float
    downsample: float
    size_yx: tuple[int, int]


def levels_of(slide: Slide, mpps: Sequence[float]) -> list[Level]:
    """The levels of the file; or, where there are `mpps`, its level 0 and one for each of them."""
    if not mpps:
        return list(map(Level, slide.level_mpps, slide.level_downsamples, slide.level_sizes_yx))
    return [Level(slide.mpp, 1.0, slide.size_yx), *(level_at(slide, mpp) for mpp in mpps)]


def level_at(slide: Slide, mpp: float) -> Level:
    """A level of any µm/px; what its last pixels cover in part counts."""
    downsample = mpp / slide.mpp
    height, width = (max(1, ceil(size / downsample - 1e-6)) for size in slide.size_yx)
    return Level(mpp, downsample, (height, width))


def power_of(slide: Slide) -> float:
    """The objective power of level 0.

    Raises:
        SlideError: The file states none.
    """
    if slide.objective_power is None:
        raise SlideError(slide.path, "states no objective power; ask by mpp (µm/px) or by level")
    return slide.objective_power


def mpp_of_power(slide: Slide, power: float) -> float:
    """The µm/px that an objective power has on this slide."""
    return slide.mpp * power_of(slide) / positive("power", power)


def square_mpp(value: float | Sequence[float]) -> float:
    """One number of µm/px, which may come once for each axis.

    Raises:
        InputError: They differ, or are not positive.
    """
    along_axes = set(np.atleast_1d(value).tolist())
    if len(along_axes) > 1:
        raise InputError(f"pixels are square; mpp is one number, got {value}")
    return positive("mpp", along_axes.pop())


def positive(name: str, value: float) -> float:
    """A number that can be divided by.

    Raises:
        InputError: It is none.
    """
    if not 0 < value < float("inf"):
        raise InputError(f"{name}: a positive number expected, got {value}")
    return float(value)


def read_rectangle(
    slide: Slide, corner_yx: tuple[float, float], size_yx: tuple[int, int], level: Level
) -> NDArray[np.uint8]:
    """A rectangle put together of the squares that `Slide.read_many` gives; a square is one of them, unless it is huge.

    Args:
        slide: An open slide.
        corner_yx: Of the rectangle, continuous level-0 pixels; may lie outside the slide, which is white.
        size_yx: Height and width, pixels of the level.
        level: At which it is read.

    Returns:
        Shape (3, *size_yx), uint8, RGB.

    Raises:
        SlideError: The level is finer than the slide by more than 10 %, or the file is damaged.
    """
    (height, width), scale = size_yx, level.mpp / slide.level_mpps[slide.level_for(level.mpp)]
    side = max(1, min(height, width, int(_MAX_SIDE_PX / scale)))
    patch = np.empty((3, height, width), np.uint8)
    lefts = range(0, width, side)
    for top in range(0, height, side):
        y = corner_yx[0] + (top + side / 2) * level.downsample
        xs = [corner_yx[1] + (left + side / 2) * level.downsample for left in lefts]
        squares = slide.read_many([Box((y, x), side, level.mpp) for x in xs])
        for left, square in zip(lefts, squares, strict=True):
            part = patch[:, top : top + side, left : left + side]
            part[:] = square[:, : part.shape[1], : part.shape[2]]
    return patch
