"""Levels of a slide, its own or at any µm/px, and rectangles read from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides import Box, Slide, SlideError
from histo_monai.utils.errors import InputError

_MAX_SIDE_PX = 4096
"""Side of the squares that form a large rectangle: 50 MB each."""


@dataclass(frozen=True)
class Level:
    """A resolution for reading a slide, in its file or not.

    Attributes:
        downsample: Level-0 pixels per pixel.
        size_yx: Height and width of the slide at this level, pixels.
    """

    mpp: float
    downsample: float
    size_yx: tuple[int, int]


def levels_of(slide: Slide, mpps: Sequence[float]) -> list[Level]:
    """The file's levels; with `mpps`, level 0 and one level per entry."""
    if not mpps:
        return list(map(Level, slide.level_mpps, slide.level_downsamples, slide.level_sizes_yx))
    return [Level(slide.mpp, 1.0, slide.size_yx), *(level_at(slide, mpp) for mpp in mpps)]


def level_at(slide: Slide, mpp: float) -> Level:
    """A level at any µm/px; partly covered last pixels count."""
    downsample = mpp / slide.mpp
    height, width = (max(1, ceil(size / downsample - 1e-6)) for size in slide.size_yx)
    return Level(mpp, downsample, (height, width))


def power_of(slide: Slide) -> float:
    """The objective power of level 0.

    Raises:
        SlideError: The file states no power.
    """
    if slide.objective_power is None:
        raise SlideError(slide.path, "states no objective power. Fix: request mpp (µm/px) or a level.")
    return slide.objective_power


def mpp_of_power(slide: Slide, power: float) -> float:
    """The µm/px of an objective power on this slide."""
    return slide.mpp * power_of(slide) / positive("power", power)


def square_mpp(value: float | Sequence[float]) -> float:
    """One µm/px value, from a number or one number per axis.

    Raises:
        InputError: The numbers differ, or are not positive.
    """
    along_axes = set(np.atleast_1d(value).tolist())
    if len(along_axes) > 1:
        raise InputError(f"mpp: got {value}, but pixels are square. Fix: pass one number.")
    return positive("mpp", along_axes.pop())


def positive(name: str, value: float) -> float:
    """A finite positive number.

    Raises:
        InputError: The value is not one.
    """
    if not 0 < value < float("inf"):
        raise InputError(f"{name}: got {value}. Fix: pass a positive number.")
    return float(value)


def read_rectangle(
    slide: Slide, corner_yx: tuple[float, float], size_yx: tuple[int, int], level: Level
) -> NDArray[np.uint8]:
    """A rectangle of a slide, assembled from squares of `Slide.read_many` if it is large or not square.

    Args:
        corner_yx: Corner of the rectangle, continuous level-0 pixels; may lie outside the slide, which is white.
        size_yx: Height and width, pixels of the level.

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
