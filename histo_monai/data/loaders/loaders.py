"""Tables -> batches of pixels, in the order of `data.loaders.batches`."""

from __future__ import annotations

import atexit
import itertools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from histo_monai.data.decoding.patches import is_decodable, read_patches
from histo_monai.data.decoding.tile_store import TileStore
from histo_monai.data.loaders.order import slides_to_mix
from histo_monai.data.loaders.pixel_cache import MAX_BYTES, PixelCache
from histo_monai.data.loaders.reader import check_on_slide
from histo_monai.slides import MAX_OPEN, Box, Slide, SlidePool, concentric_boxes
from histo_monai.utils.errors import InputError
from histo_monai.utils.transfer import sent

AHEAD = 2
"""Batches that each reading process prefetches."""
_FEW_SLIDES = 5
Patches = tuple[torch.Tensor, torch.Tensor]
"""Pixels (n, C S, 3, P, P) uint8 of C centers at S resolutions, and the row of each sample in its table (n,) int64."""
Offsets = Sequence[tuple[float, float]]
"""Centers of a sample: (y, x) from the center in its table, in sides of the finest patch."""
ONE_CENTER: Offsets = ((0.0, 0.0),)


class PatchDataset(Dataset[Patches], ABC):
    """Rows with pixels of one size, read in whole batches."""

    @property
    @abstractmethod
    def num_bytes(self) -> int:
        """Bytes of all pixels."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @abstractmethod
    def __getitems__(self, indices: Sequence[int]) -> Patches:
        """A batch, in the order of `indices`."""


class ConcentricPatches(PatchDataset):
    """Samples read from slides: one patch per resolution around each of their centers.

    A batch is read at once, grouped by slide, so each slide decodes its tiles once per batch.

    Args:
        slides: Columns `slide_id`, `path`, `mpp`.
        centers: Columns `slide_id`, `y`, `x` in level-0 pixels.
        mpps: S resolutions in µm/px, finest first.
        patch_px: P.
        offsets: C centers of each sample; its patches are those of the first center, then of the next.
        max_open_slides: Limit of open slides per process.
        max_cache_bytes: Limit of the pixel cache (`PixelCache`).

    Raises:
        InputError: A center names a slide that is not in `slides`.
    """

    def __init__(
        self,
        slides: pd.DataFrame,
        centers: pd.DataFrame,
        *,
        mpps: Sequence[float],
        patch_px: int,
        offsets: Offsets = ONE_CENTER,
        max_open_slides: int = MAX_OPEN,
        max_cache_bytes: int = MAX_BYTES,
    ) -> None:
        rows = pd.Index(slides["slide_id"]).get_indexer(pd.Index(centers["slide_id"]))
        if (rows < 0).any():
            missing = centers["slide_id"].iloc[int((rows < 0).argmax())]
            raise InputError(
                f"centers.csv: slide {missing!r} is not in slides.csv. Fix: run the index stage again."
            )
        self.slide_row = rows.astype(np.int32)
        self.center_yx = centers[["y", "x"]].to_numpy(dtype=np.int32)
        self.paths = [Path(path) for path in slides["path"]]
        self.slide_mpps = slides["mpp"].to_numpy(dtype=np.float64)
        self.mpps = tuple(float(mpp) for mpp in mpps)
        self.patch_px = patch_px
        self.offsets = np.array(offsets, dtype=np.float64).reshape(-1, 2)
        self.num_patches = len(self.offsets) * len(self.mpps)
        self._pool = SlidePool(max_open_slides)
        self._cache = PixelCache(len(rows), (self.num_patches, 3, patch_px, patch_px), max_cache_bytes)

    def __len__(self) -> int:
        return len(self.slide_row)

    @property
    def num_bytes(self) -> int:
        """Bytes of all pixels."""
        return len(self) * self.num_patches * 3 * self.patch_px**2

    @property
    def slides_to_mix(self) -> NDArray[np.int32] | None:
        """Slide number of each row if reading few slides at a time is faster, else None."""
        return slides_to_mix(self.slide_row, max_open=self._pool.max_open, num_cached=self._cache.num)

    def __getitem__(self, index: int) -> Patches:
        """One sample, with a leading axis of 1."""
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Patches:
        """A batch, in the order of `indices`."""
        rows = np.asarray(indices, dtype=np.int64)
        return torch.from_numpy(self._cache.get(rows, self._read)), torch.from_numpy(rows)

    def suits(self, store: TileStore) -> bool:
        """Whether a store decodes the slides, judged by a few of them; others are decoded by the CPU."""
        few = np.unique(np.linspace(0, len(self.paths) - 1, _FEW_SLIDES).astype(int))
        slides = (self._pool.get(self.paths[row], float(self.slide_mpps[row])) for row in few)
        return all(is_decodable(slide, self.mpps, store) for slide in slides)

    def decoded(self, rows: NDArray[np.int64], store: TileStore) -> torch.Tensor:
        """Pixels of a batch on the device of a store, in the order of `rows`."""
        num, side = self.num_patches, self.patch_px
        patches = torch.empty((len(rows), num, 3, side, side), dtype=torch.uint8, device=store.device)
        for where, slide, boxes in self._boxes(rows):
            read = read_patches(slide, boxes, store).view(len(where), num, 3, side, side)
            patches[sent(torch.from_numpy(where), store.device)] = read
        return patches

    def _read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        num, side = self.num_patches, self.patch_px
        patches = np.empty((len(rows), num, 3, side, side), dtype=np.uint8)
        for where, slide, boxes in self._boxes(rows):
            patches[where] = slide.read_many(boxes).reshape(len(where), num, 3, side, side)
        return patches

    def _boxes(self, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Slide, list[Box]]]:
        """Slide after slide: places in the batch, the slide, and the boxes of its samples."""
        of_slide = self.slide_row[rows]
        for slide_row in np.unique(of_slide):
            where = np.flatnonzero(of_slide == slide_row)
            slide = self._pool.get(self.paths[slide_row], float(self.slide_mpps[slide_row]))
            check_on_slide(slide, self.center_yx[rows[where]])
            offsets = self.offsets * (self.patch_px * self.mpps[0] / slide.mpp)
            centers = (self.center_yx[rows[where]][:, np.newaxis] + offsets).reshape(-1, 2)
            boxes = [concentric_boxes((float(y), float(x)), self.patch_px, self.mpps) for y, x in centers]
            yield where, slide, list(itertools.chain.from_iterable(boxes))


def _as_read(batch: Any) -> Any:
    return batch


class _Loader(DataLoader[Patches]):
    """A loader that ends its reading processes however it is released.

    Torch waits five seconds for each process without an end message. No message is sent if a loader is collected in a
    reference cycle, such as a trainer's handlers (its queues are collected first), or at exit with page-locked memory.
    """

    def _get_iterator(self) -> Any:
        iterator: Any = super()._get_iterator()
        if self.num_workers:
            # The finalizer holds the iterator, so neither it nor its queues are collected first.
            atexit.register(weakref.finalize(self, iterator._shutdown_workers))
            atexit.unregister(
                type(iterator)._clean_up_worker
            )  # It waits for, and holds, every process that ever existed.
        return iterator


def patch_loader(
    dataset: Dataset[Patches], batches: Sampler[list[int]], *, workers: int, pin: bool
) -> DataLoader[Patches]:
    """A loader with persistent workers; each worker opens its own slides after the fork.

    Args:
        dataset: Reads whole batches through `__getitems__`.
        batches: Rows of each batch.
        workers: Number of reading processes; 0 reads in this process.
        pin: Use page-locked memory, for asynchronous copies to a GPU.
    """
    return _Loader(
        dataset,
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=_as_read,
        pin_memory=pin,
        persistent_workers=workers > 0,
        prefetch_factor=AHEAD if workers > 0 else None,
        multiprocessing_context="fork" if workers > 0 else None,
    )
