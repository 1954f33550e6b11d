"""Patches of a slide cut from tiles that were decoded on a device; pixels are those of `Slide.read_many`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.data.decoding.resample import cropped, patches_of
from histo_monai.data.decoding.tile_store import TileStore
from histo_monai.slides import Box, Slide
from histo_monai.slides.reader import level_tiles, plan_box
from histo_monai.slides.resample import Window
from histo_monai.slides.tiff import LevelTiles
from histo_monai.utils.errors import InputError
from histo_monai.utils.transfer import sent

_COPIES, _COPIES_RESAMPLED = 3, 14
"""Bytes of memory for each byte of the tiles under patches; resampling needs float32."""

_Numbered = tuple[int, Window]


def is_decodable(slide: Slide, mpps: Sequence[float], store: TileStore) -> bool:
    """Whether the levels that serve these resolutions are encoded as the codec reads it; a tile of each is tried.

    Raises:
        SlideError: The slide is coarser than asked for, or that tile is damaged.
    """
    for level in {slide.level_for(mpp) for mpp in mpps}:
        tiles = level_tiles(slide, level)
        if tiles is None or not store.codec.reads(tiles.page):
            return False
        written = np.flatnonzero(np.asarray(tiles.page.counts) > 0)[:1]
        places = [
            (int(row), int(column)) for row, column in (divmod(n, tiles.page.grid_yx[1]) for n in written)
        ]
        if None in store.codec.decode(tiles.page, tiles.backend.encoded(tiles.number, places)):
            return False
    return True


def read_patches(slide: Slide, boxes: Sequence[Box], store: TileStore) -> torch.Tensor:
    """The patches of boxes of one side, in the given order.

    Returns:
        Shape (n, 3, side_px, side_px), uint8, RGB, on the store's device. A value differs from `Slide.read_many` by
        the codec's rounding, and by at most 1 where the patch is resampled.

    Raises:
        InputError: There are no boxes.
        SlideError: A box is finer than the slide by more than 10 %, or the file is damaged.
    """
    if not boxes:
        raise InputError("read_patches: no box. Fix: pass at least one.")
    asking = torch.cuda.current_stream(store.device) if store.stream is not None else None
    with torch.cuda.stream(store.stream):
        patches = _read(slide, boxes, store)
    if asking is not None and store.stream is not None and asking != store.stream:
        asking.wait_stream(store.stream)
        patches.record_stream(asking)
    return patches


def _read(slide: Slide, boxes: Sequence[Box], store: TileStore) -> torch.Tensor:
    """`read_patches` on the store's stream."""
    side = boxes[0].side_px
    patches = torch.empty((len(boxes), 3, side, side), dtype=torch.uint8, device=store.device)
    groups: dict[tuple[int, int, float, bool], list[_Numbered]] = defaultdict(list)
    for number, (level, window) in enumerate(plan_box(slide, box) for box in boxes):
        groups[level, window.region_px, window.scale, window.is_aligned].append((number, window))
    for (level, *_), group in groups.items():
        tiles = level_tiles(slide, level)
        waiting: list[Sequence[_Numbered]] = [group]
        together = _most_together(tiles, group[0][1], store) if tiles is not None else 0
        if together:
            waiting = [group[first : first + together] for first in range(0, len(group), together)]
        else:
            tiles = None
        while waiting:
            part = waiting.pop()
            numbers, windows = [number for number, _ in part], [window for _, window in part]
            regions = _regions(tiles, windows, store) if tiles is not None else None
            if regions is not None:
                ready = patches_of(regions, windows)
            elif tiles is not None and len(part) > 1:  # The tiles of half of them may fit.
                waiting += [part[: len(part) // 2], part[len(part) // 2 :]]
                continue
            else:
                read = slide.read_many([boxes[number] for number in numbers])
                ready = sent(torch.from_numpy(read), store.device)
            patches[sent(torch.tensor(numbers), store.device)] = ready
    return patches


def _most_together(tiles: LevelTiles, window: Window, store: TileStore) -> int:
    """Number of windows that the device has memory to cut together; 0 if it cannot decode them, or cut one."""
    if not store.codec.reads(tiles.page):
        return 0
    height, width = tiles.page.tile_yx
    is_copied = window.is_aligned and window.reduction == 1
    num_bytes = 3 * (window.region_px + 2 * height) * (window.region_px + 2 * width)
    return store.most_cut_bytes // (num_bytes * (_COPIES if is_copied else _COPIES_RESAMPLED))


def _under(
    tiles: LevelTiles, windows: Sequence[Window]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """Tiles under windows of one size.

    Returns:
        Rows and columns of the tiles under each window, shape (n, Ky, Kx, 2); which of them the level has, shape
        (n, Ky, Kx); and the corners of the windows from that of their first tile, shape (n, 2).
    """
    tile_yx = np.array(tiles.page.tile_yx)
    corners = np.array([window.corner_yx for window in windows], dtype=np.int64)
    first = corners // tile_yx
    num = ((corners + windows[0].region_px - 1) // tile_yx - first).max(axis=0) + 1
    steps = np.stack(np.meshgrid(*map(np.arange, num), indexing="ij"), axis=-1)
    places = first[:, None, None] + steps
    grid_yx = -(-np.array(tiles.size_yx) // tile_yx)
    return places, ((places >= 0) & (places < grid_yx)).all(axis=-1), corners - first * tile_yx


def _regions(tiles: LevelTiles, windows: Sequence[Window], store: TileStore) -> torch.Tensor | None:
    """Regions of windows of one size, white outside the slide; None if the store cannot hold all their tiles.

    Returns:
        Shape (n, 3, region_px, region_px), uint8.
    """
    places, is_there, offsets = _under(tiles, windows)
    slots = np.zeros(is_there.shape, dtype=np.int64)
    known, which = np.unique(places[is_there], axis=0, return_inverse=True)
    if len(known) > store.most_tiles(tiles.page.tile_yx):
        return None
    num, (height, width) = len(slots), tiles.page.tile_yx
    rows, columns = places.shape[1:3]
    with store.holding(tiles, list(map(tuple, known.tolist()))) as found:
        slots[is_there] = found[which.ravel()]
        mosaics = store.pixels(tiles.page.tile_yx)[sent(torch.from_numpy(slots.ravel()), store.device)]
    mosaics = mosaics.view(num, rows, columns, 3, height, width).permute(0, 3, 1, 4, 2, 5)
    whole = mosaics.reshape(num, 3, rows * height, columns * width)
    return cropped(whole, torch.from_numpy(offsets), windows[0].region_px)
