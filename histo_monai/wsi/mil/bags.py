"""Patch features of slides for training, from memory or from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.utils.errors import InputError
from histo_monai.wsi.inference.patch_features import FeatureFile

MOST_BYTES = 2 * 2**30
"""Memory limit of features, bytes."""


class Bags:
    """One bag of patch features per slide; empty without tissue.

    Args:
        paths: feature files.
        most_bytes: memory limit; larger data are read from the files each time.

    Raises:
        InputError: a file cannot be used, or has another number of features; names it.
    """

    def __init__(self, paths: Sequence[Path], most_bytes: int = MOST_BYTES) -> None:
        self.paths = list(paths)
        sizes: list[tuple[int, int]] = []
        for path in self.paths:
            with FeatureFile(path) as file:
                sizes.append((file.num_patches, file.num_features))
        for path, (_, num_features) in zip(self.paths, sizes, strict=True):
            if num_features != sizes[0][1]:
                raise InputError(
                    f"{path}: {num_features} features per patch, but {self.paths[0]} has {sizes[0][1]}. Fix: make both "
                    "with one encoder"
                )
        self.sizes = [num for num, _ in sizes]
        self.num_features = sizes[0][1] if sizes else 0
        in_memory = 4 * sum(num * width for num, width in sizes) <= most_bytes
        self._bags = [_read(path) for path in self.paths] if in_memory else None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Patch features of a slide, (n, D), float32."""
        return _read(self.paths[index]) if self._bags is None else self._bags[index]

    def moments(self, which: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and standard deviation of each feature over all patches of some slides, (D,), float32.

        The standard deviation of a constant feature is 1.
        """
        total = np.zeros(self.num_features)
        squares = np.zeros(self.num_features)
        num = 0
        for index in which:
            bag = self[index].numpy().astype(np.float64)
            total += bag.sum(axis=0)
            squares += np.square(bag).sum(axis=0)
            num += len(bag)
        mean = total / num
        sd = np.sqrt(np.maximum(squares / num - np.square(mean), 0))
        scale = np.where(sd > 1e-6 * (1 + np.abs(mean)), sd, 1.0)
        return torch.from_numpy(mean).float(), torch.from_numpy(scale).float()

    def summaries(self) -> dict[str, NDArray[np.float64]]:
        """Slide features without attention; NaN for an empty bag.

        Returns:
            `mean` of the patch features, (slides, D); `mean_and_sd`, with standard deviations, (slides, 2 D).
        """
        none = np.full((1, self.num_features), np.nan)
        bags = (self[i].numpy().astype(np.float64) if self.sizes[i] else none for i in range(len(self)))
        both = np.stack([np.concatenate([bag.mean(axis=0), bag.std(axis=0)]) for bag in bags])
        return {"mean": both[:, : self.num_features], "mean_and_sd": both}


def _read(path: Path) -> torch.Tensor:
    with FeatureFile(path) as file:
        return torch.from_numpy(file.features())
