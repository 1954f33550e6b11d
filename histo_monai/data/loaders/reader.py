"""Read labeled patches from image files and slides, without loading a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.slides import MAX_OPEN, Box, Slide, SlideError, SlidePool
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.trees import MAX_ASPECT, read_image


class PatchReader:
    """Patches of a table's rows at one side, grouped by slide so that each slide decodes its tiles once.

    Args:
        table: `data.tables.columns.PATCH_COLUMNS`; rows with `y` and `x` are squares of slides, others image files.
        patch_px: P, to which every patch is resized.
        max_open_slides: Limit of open slides per process.
    """

    def __init__(self, table: pd.DataFrame, *, patch_px: int, max_open_slides: int = MAX_OPEN) -> None:
        self.paths, self._files = pd.factorize(table["path"])
        self.patch_px = patch_px
        self.center_yx = table[["y", "x"]].to_numpy(np.float64)
        self.side_px = table["side_px"].to_numpy(np.int32)
        self.mpp = table["mpp"].to_numpy(np.float64)
        self.slide_mpp = table["slide_mpp"].to_numpy(np.float64)
        self.max_open_slides = max_open_slides
        self._pool = SlidePool(max_open_slides)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def slides(self) -> NDArray[np.int32]:
        """Slide number of each row; -1 for an image file."""
        return np.where(np.isnan(self.center_yx[:, 0]), -1, self.paths).astype(np.int32)

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Patches in the order of `rows`, (n, 3, P, P) uint8.

        Raises:
            InputError: A file cannot be read, or an image is not square; names the file.
        """
        patches = np.empty((len(rows), 3, self.patch_px, self.patch_px), dtype=np.uint8)
        is_square = ~np.isnan(self.center_yx[rows, 0])
        for place in np.flatnonzero(~is_square):
            path = Path(self._files[self.paths[rows[place]]])
            patches[place] = resize_square(read_image(path), self.patch_px, path).transpose(2, 0, 1)
        groups = np.stack([self.paths[rows], self.side_px[rows]], axis=1)
        for group in np.unique(groups[is_square], axis=0):
            places = np.flatnonzero(is_square & (groups == group).all(axis=1))
            patches[places] = self._squares(rows[places])
        return patches

    def _squares(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Squares of one slide with one side."""
        first, side = rows[0], int(self.side_px[rows[0]])
        slide_mpp = float(self.slide_mpp[first])
        path = Path(self._files[self.paths[first]])
        slide = self._pool.get(path, None if np.isnan(slide_mpp) else slide_mpp)
        boxes = [
            Box((float(y), float(x)), side, float(mpp))
            for (y, x), mpp in zip(self.center_yx[rows], self.mpp[rows], strict=True)
        ]
        check_on_slide(slide, self.center_yx[rows])
        patches: NDArray[np.uint8] = slide.read_many(boxes)
        if side == self.patch_px:
            return patches
        resized = [resize_square(patch.transpose(1, 2, 0), self.patch_px, path) for patch in patches]
        return np.stack(resized).transpose(0, 3, 1, 2)


def check_on_slide(slide: Slide, center_yx: NDArray[Any]) -> None:
    """Refuse patch centers outside the slide, which would read white.

    Args:
        center_yx: Shape (n, 2), level-0 pixels.

    Raises:
        SlideError: The slide differs from the indexed one.
    """
    outside = ((center_yx < 0) | (center_yx > np.array(slide.size_yx))).any(axis=1)
    if outside.any():
        y, x = center_yx[outside][0]
        height, width = slide.size_yx
        raise SlideError(
            slide.path,
            f"the patch center y {y:g}, x {x:g} lies outside its {height} x {width} px. Fix: restore the "
            "indexed slide, or run `dvc repro index` again.",
        )


def resize_square(pixels: NDArray[np.uint8], side_px: int, path: Path) -> NDArray[np.uint8]:
    """An image resized to a square: by area when shrinking, bicubic when growing.

    Args:
        pixels: Shape (H, W, 3), uint8; H and W may differ by a tenth.
        path: Source of the image, for the message.

    Returns:
        Shape (side_px, side_px, 3), uint8.

    Raises:
        InputError: The image is not square, to within a tenth.
    """
    height, width = pixels.shape[:2]
    if (height, width) == (side_px, side_px):
        return pixels
    if max(height, width) > MAX_ASPECT * min(height, width):
        raise InputError(f"{path}: {height} × {width} px. Fix: use a square, to within a tenth.")
    way = cv2.INTER_AREA if min(height, width) >= side_px else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(pixels, (side_px, side_px), interpolation=way), dtype=np.uint8)
