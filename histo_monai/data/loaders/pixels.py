"""Labeled patches -> batches of pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from histo_monai.data.loaders.loaders import PatchDataset, Patches
from histo_monai.data.loaders.order import slides_to_mix
from histo_monai.data.loaders.pixel_cache import MAX_BYTES, PixelCache
from histo_monai.data.loaders.reader import PatchReader
from histo_monai.slides import MAX_OPEN


class LabeledPatches(PatchDataset):
    """Dataset of a `PatchReader` with a cache; batches are read at once.

    Args:
        patch_px: P, to which every patch is resized.
        max_open_slides: Limit of open slides per process.
        max_cache_bytes: Limit of the pixel cache (`PixelCache`).
    """

    def __init__(
        self,
        table: pd.DataFrame,
        *,
        patch_px: int,
        max_open_slides: int = MAX_OPEN,
        max_cache_bytes: int = MAX_BYTES,
    ) -> None:
        self._reader = PatchReader(table, patch_px=patch_px, max_open_slides=max_open_slides)
        self._cache = PixelCache(len(table), (3, patch_px, patch_px), max_cache_bytes)

    def __len__(self) -> int:
        return len(self._reader)

    @property
    def num_bytes(self) -> int:
        """Bytes of all pixels."""
        return len(self) * math.prod(self._cache.shape)

    @property
    def slides_to_mix(self) -> NDArray[np.int32] | None:
        """Slide number of each row if reading few slides at a time is faster, else None."""
        reader = self._reader
        return slides_to_mix(reader.slides, max_open=reader.max_open_slides, num_cached=self._cache.num)

    def __getitem__(self, index: int) -> Patches:
        """One patch, with a leading axis of 1."""
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Patches:
        """A batch, in the order of `indices`: (n, 1, 3, P, P) uint8 and the rows (n,) int64.

        Raises:
            InputError: A file cannot be read, or an image is not square; names the file.
        """
        rows = np.asarray(indices, dtype=np.int64)
        pixels = self._cache.get(rows, self._reader.read)
        return torch.from_numpy(pixels[:, None]), torch.from_numpy(rows)
