"""Slide files -> patches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.backends import Backend
from histo_monai.slides.cucim_backend import SUFFIXES, CucimBackend, why_not_cucim
from histo_monai.slides.errors import SlideError
from histo_monai.slides.geometry import Box, choose_level
from histo_monai.slides.opening import (
    Opened,
    checked_files,
    open_by_tiles,
    open_without_cucim,
    with_level_0_first,
)
from histo_monai.slides.resample import WHITE, Window, area_resample, make_patches, plan_window
from histo_monai.slides.resolution import objective_power, resolve_mpp
from histo_monai.slides.tiff import (
    LevelTiles,
    TiffBackend,
    find_levels,
    is_leica,
    is_tiff,
    read_pages,
    why_not_leica,
)
from histo_monai.utils.errors import InputError

_STRIP_PX = 16 * 2**20
_MAX_PX = 2**28
_NEIGHBORS = 48
"""Boxes read together: their tiles fit into the cache, so each tile is decoded once."""

_BAND_PX = 2048
"""Height of the level-0 bands that are read from left to right, one after the other."""


class Slide:
    """An open slide, made by `open_slide`. It belongs to one process; unpickling opens the file again.

    Attributes:
        mpp: µm per level-0 pixel.
        size_yx: Height and width of level 0, pixels.
        level_downsamples: Level-0 pixels per pixel of each level, finest first.
        level_mpps: µm per pixel of each level, finest first.
        level_sizes_yx: Height and width of each level, pixels, without padding to whole tiles.
        objective_power: Power of level 0 (20 for 20x); None if the file states none.
    """

    def __init__(
        self,
        path: Path,
        mpp: float,
        backend: Backend,
        downsamples: Mapping[int, float],
        objective_power: float | None = None,
    ) -> None:
        self.path, self.mpp, self.objective_power = path, mpp, objective_power
        self._backend = backend
        self._numbers = tuple(downsamples)
        sizes_yx = [backend.level_sizes_yx[number] for number in downsamples]
        self.size_yx = sizes_yx[0]
        if not all(abs(place) < side for place, side in zip(backend.bounds_yx, self.size_yx, strict=True)):
            (y, x), (height, width) = backend.bounds_yx, self.size_yx
            raise SlideError(
                path,
                f"states bounds at x {x}, y {y}, outside of its canvas of {width} x {height} px. "
                "Fix: copy or export it again.",
            )
        self.level_downsamples = tuple(downsamples.values())
        # Without the padding to whole tiles that some writers add.
        self.level_sizes_yx = tuple(
            (min(h, ceil(self.size_yx[0] / downsample)), min(w, ceil(self.size_yx[1] / downsample)))
            for (h, w), downsample in zip(sizes_yx, self.level_downsamples, strict=True)
        )
        self.level_mpps = tuple(mpp * downsample for downsample in self.level_downsamples)

    @property
    def backend(self) -> str:
        """The decoding library: "cucim", "openslide" or "pillow"."""
        return self._backend.name

    @property
    def bounds_yx(self) -> tuple[int, int]:
        """Corner of the image on the canvas, level-0 pixels, where QuPath's coordinates begin; (0, 0) by default."""
        return self._backend.bounds_yx

    def read(self, box: Box) -> NDArray[np.uint8]:
        """The patch of a box, shape (3, side_px, side_px), uint8, RGB; white outside the slide.

        Raises:
            SlideError: The box is finer than the slide by more than 10 %, or the file is damaged there.
        """
        return self.read_many([box])[0]

    def read_many(self, boxes: Sequence[Box]) -> NDArray[np.uint8]:
        """The patches of many boxes of one side; much faster than one by one.

        For concentric boxes, pass them flattened and reshape the result to (n, S, 3, side_px, side_px).

        Returns:
            Shape (n, 3, side_px, side_px), uint8, RGB, in the given order.

        Raises:
            InputError: There are no boxes, or they differ in side_px.
            SlideError: A box is finer than the slide by more than 10 %, or the file is damaged.
        """
        sides = {box.side_px for box in boxes}
        if len(sides) != 1:
            raise InputError(
                f"read_many: side_px is {sorted(sides) or 'missing'}. Fix: pass boxes of one side_px."
            )
        side = sides.pop()
        plans = [self._plan(box) for box in boxes]
        patches = np.empty((len(boxes), 3, side, side), np.uint8)
        # Neighbors in a row, with all resolutions of a place together: they use the same tiles.
        order = sorted(range(len(boxes)), key=lambda number: _place(boxes[number]))
        for first in range(0, len(order), _NEIGHBORS):
            groups: dict[tuple[int, int, float, bool], list[tuple[int, Window]]] = defaultdict(list)
            for number in order[first : first + _NEIGHBORS]:
                level, window = plans[number]
                groups[level, window.region_px, window.scale, window.is_aligned].append((number, window))
            for (level, *_), group in groups.items():
                self._fill(level, [number for number, _ in group], [window for _, window in group], patches)
        return patches

    def _fill(
        self, level: int, numbers: Sequence[int], windows: Sequence[Window], patches: NDArray[np.uint8]
    ) -> None:
        make_patches(self._regions(level, windows), windows, [patches[number] for number in numbers])

    def level_for(self, mpp: float) -> int:
        """The level that patches of ``mpp`` are read from (`choose_level`).

        Raises:
            SlideError: ``mpp`` is finer than the slide by more than 10 %.
        """
        try:
            return choose_level(self.level_mpps, mpp)
        except InputError as error:
            raise SlideError(self.path, str(error)) from None

    def _plan(self, box: Box) -> tuple[int, Window]:
        level = self.level_for(box.mpp)
        downsample = self.level_downsamples[level]
        center_yx = (box.center_yx[0] / downsample, box.center_yx[1] / downsample)
        window = plan_window(center_yx, box.side_px, box.mpp / self.level_mpps[level])
        self._check_size(window.region_px, window.region_px, box.mpp)
        return level, window

    def _check_size(self, height: int, width: int, mpp: float) -> None:
        if height * width > _MAX_PX:
            raise SlideError(
                self.path,
                f"at {mpp:g} µm/px this read has {width} x {height} px, more than {_MAX_PX}. Fix: read a smaller "
                f"region; levels have {', '.join(f'{level_mpp:.4g}' for level_mpp in self.level_mpps)} µm/px.",
            )

    def _regions(self, level: int, windows: Sequence[Window]) -> Iterator[NDArray[np.uint8]]:
        """Regions of windows of one size, white outside the slide."""
        height, width = self.level_sizes_yx[level]
        region_px = windows[0].region_px
        size_yx = (min(region_px, height), min(region_px, width))
        corners = [
            (
                min(max(window.corner_yx[0], 0), height - size_yx[0]),
                min(max(window.corner_yx[1], 0), width - size_yx[1]),
            )
            for window in windows
        ]
        read = self._backend.read_regions(self._numbers[level], corners, size_yx)
        for window, corner, pixels in zip(windows, corners, read, strict=True):
            if corner == window.corner_yx and size_yx == (region_px, region_px):
                yield pixels
                continue
            canvas = np.full((region_px, region_px, 3), WHITE, np.uint8)
            top, left = (corner[axis] - window.corner_yx[axis] for axis in (0, 1))
            into = canvas[max(top, 0) : max(top + size_yx[0], 0), max(left, 0) : max(left + size_yx[1], 0)]
            if into.size:
                y, x = max(-top, 0), max(-left, 0)
                into[:] = pixels[y : y + into.shape[0], x : x + into.shape[1]]
            yield canvas

    def thumbnail_mpp(self, side_px: int) -> float:
        """µm per pixel at which the longer side has `side_px` pixels, but not finer than the slide."""
        return max(self.mpp, max(self.size_yx) * self.mpp / side_px)

    def thumbnail(self, mpp: float) -> NDArray[np.uint8]:
        """The whole slide at a low resolution, read in strips to bound memory.

        Returns:
            Shape (h, w, 3), uint8, RGB; h and w are the slide's size at ``mpp``, rounded up.
        """
        level = self.level_for(mpp)
        height, width = self.level_sizes_yx[level]
        scale = mpp / self.level_mpps[level]
        out_h, out_w = (max(1, int(np.ceil(size / scale - 1e-6))) for size in (height, width))
        self._check_size(out_h, out_w, mpp)
        out = np.empty((out_h, out_w, 3), np.uint8)
        rows = max(1, int(_STRIP_PX / (width * scale)))
        for first in range(0, out_h, rows):
            count = min(rows, out_h - first)
            top = max(0, int(np.floor(first * scale)) - 1)
            bottom = min(height, int(np.ceil((first + count) * scale)) + 1)
            (pixels,) = self._backend.read_regions(self._numbers[level], [(top, 0)], (bottom - top, width))
            start = (first * scale - top, 0.0)
            out[first : first + count] = area_resample(pixels, start, (scale, scale), (count, out_w))
        return out

    def close(self) -> None:
        """Close the file."""
        self._backend.close()

    def __reduce__(self) -> tuple[Callable[..., Slide], tuple[Path, float]]:
        """Path and µm/px: another process opens the file itself."""
        return open_slide, (self.path, self.mpp)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_slide(path: str | Path, mpp: float | None = None) -> Slide:
    """An open slide, decoded by cuCIM, else by OpenSlide or Pillow (logged with the reason).

    Args:
        mpp: µm per level-0 pixel from the manifest; overrides the file's own, with a warning where both differ by
            more than 5 %.

    Raises:
        SlideError: The file is missing, empty, truncated or no slide, or states no resolution.
    """
    path = Path(path)
    files = checked_files(path)
    # OpenSlide knows vendors' TIFFs (.scn, .bif) better, but trusts their tables; only .ndpi breaks the tables' rules.
    pages = read_pages(path) if path.suffix.lower() != ".ndpi" and is_tiff(path) else []
    if is_leica(pages) and (why := why_not_leica(pages)):
        raise SlideError(path, why)
    if path.suffix.lower() not in SUFFIXES or is_leica(pages):  # cuCIM ignores Leica's canvas.
        pages = []
    levels = find_levels(path, pages) if pages else []
    why = why_not_cucim(path, with_level_0_first(pages, levels))
    opened: Opened | None = None
    if why is None:
        try:
            opened = open_by_tiles(path, pages, levels, CucimBackend)
        except SlideError:
            raise
        except (ImportError, RuntimeError, ValueError) as error:
            why = str(error).splitlines()[0]
    if opened is None:
        opened = open_without_cucim(path, files, pages, levels, str(why))
    mpp = resolve_mpp(path, mpp, opened.pages, opened.properties)
    power = objective_power(opened.pages, opened.properties)
    return Slide(path, mpp, opened.backend, opened.downsamples, power)


def plan_box(slide: Slide, box: Box) -> tuple[int, Window]:
    """Level of a box, and the window of it that is read.

    Raises:
        SlideError: The box is finer than the slide by more than 10 %, or too large.
    """
    return slide._plan(box)


def level_tiles(slide: Slide, level: int) -> LevelTiles | None:
    """The encoded tiles of a level; None for a library that does not give them (OpenSlide)."""
    if not isinstance(slide._backend, TiffBackend):
        return None
    return LevelTiles(slide._backend, slide._numbers[level], slide.level_sizes_yx[level])


def _place(box: Box) -> tuple[float, float]:
    """Sorting key of a box: band of rows, then x."""
    return box.center_yx[0] // _BAND_PX, box.center_yx[1]
