"""Compare a few pixels of a level with the next finer level, to detect pages of another picture."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import ceil, floor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.backends import Backend
from histo_monai.slides.errors import SlideError
from histo_monai.slides.resample import area_resample
from histo_monai.slides.tiff.levels import LEAST_STEP, Level
from histo_monai.slides.tiff.tables import Page

logger = logging.getLogger(__name__)

_MOST_SIDE_PX = 64
_MOST_FINE_PX = 256
_LEAST_SIDE_PX = 16
_SAME_GRAY = 8.0
"""Largest mean difference between reductions of one picture, gray levels, from encoding and resampling."""

_LEAST_CORRELATION = 0.6


def keep_alike(path: Path, backend: Backend, levels: Sequence[tuple[int, Level]]) -> dict[int, float]:
    """Level number in the backend -> downsample, finest first, for the levels that show the slide.

    A doubtful level with another picture, or a second level of one size, is skipped with a warning.

    Args:
        path: For messages.
        levels: Numbers and levels, finest first; the first is the slide.
    """
    result = {levels[0][0]: levels[0][1].downsample}
    for number, level in levels[1:]:
        finer = next(reversed(result.items()))
        is_new = level.downsample >= LEAST_STEP * finer[1]
        is_other = level.is_doubtful and not _looks_alike(
            backend, finer, (number, level.downsample), level.page
        )
        if is_other or not is_new:
            height, width = level.page.size_yx
            logger.warning(
                "slide %s: skipped as a level, because %s: tiled image %d (%d x %d px)",
                path, "it looks like something else" if is_other else "there is one of its size",
                level.page.number, width, height,
            )  # fmt: skip
        else:
            result[number] = level.downsample
    return result


def _looks_alike(backend: Backend, fine: tuple[int, float], coarse: tuple[int, float], page: Page) -> bool:
    """Whether a coarser level shows the picture of a finer one.

    Compares the tile with the most bytes, which has the most detail, or three windows on the diagonal if all tiles have
    equal sizes.

    Args:
        fine: Number of the finer level in the backend, and its downsample.
        coarse: Number and downsample of the coarser level.
    """
    step = coarse[1] / fine[1]
    size_yx = [
        min(backend.level_sizes_yx[coarse[0]][axis], int(backend.level_sizes_yx[fine[0]][axis] / step))
        for axis in (0, 1)
    ]
    side = max(_LEAST_SIDE_PX, min(_MOST_SIDE_PX, int(_MOST_FINE_PX / step)))
    height, width = max(1, min(side, size_yx[0])), max(1, min(side, size_yx[1]))
    ones, others = [], []
    for center_yx in _centers(page, size_yx):
        top, left = (
            min(max(0, center - part // 2), max(0, whole - part))
            for center, part, whole in zip(center_yx, (height, width), size_yx, strict=True)
        )
        try:
            (pixels,) = backend.read_regions(coarse[0], [(top, left)], (height, width))
            others.append(_reduced(backend, fine[0], (top, left), (height, width), step).reshape(-1, 3))
        except SlideError:  # Damage is reported when its pixels are requested.
            return True
        ones.append(np.asarray(pixels, np.float32).reshape(-1, 3))
    return _are_alike(np.concatenate(ones), np.concatenate(others))


def _centers(page: Page, size_yx: list[int]) -> list[tuple[int, int]]:
    """Centers of windows, pixels of the level."""
    counts = page.counts[: page.grid_yx[0] * page.grid_yx[1]]
    if len(counts) > 1 and counts.min() < counts.max():
        row, column = divmod(int(counts.argmax()), page.grid_yx[1])
        # The middle of the tile's first quarter: one tile of a level that is twice as fine.
        return [(int((row + 0.25) * page.tile_yx[0]), int((column + 0.25) * page.tile_yx[1]))]
    return [(size_yx[0] * part // 4, size_yx[1] * part // 4) for part in (1, 2, 3)]


def _reduced(
    backend: Backend, level: int, corner_yx: tuple[int, int], size_yx: tuple[int, int], step: float
) -> NDArray[np.float32]:
    """A window of the coarser level, computed from the finer level."""
    top, left = (floor(corner * step) for corner in corner_yx)
    height, width = backend.level_sizes_yx[level]
    bottom = min(height, ceil((corner_yx[0] + size_yx[0]) * step))
    right = min(width, ceil((corner_yx[1] + size_yx[1]) * step))
    (pixels,) = backend.read_regions(level, [(top, left)], (bottom - top, right - left))
    start_yx = (corner_yx[0] * step - top, corner_yx[1] * step - left)
    return np.asarray(area_resample(pixels, start_yx, (step, step), size_yx), np.float32)


def _are_alike(ones: NDArray[np.float32], others: NDArray[np.float32]) -> bool:
    if float(np.abs(ones - others).mean()) <= _SAME_GRAY:
        return True
    ones, others = ones - ones.mean(0), others - others.mean(0)
    product = float((ones * others).sum())
    return product >= _LEAST_CORRELATION * float(np.sqrt((ones**2).sum() * (others**2).sum())) > 0
