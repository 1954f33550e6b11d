"""Endless streams of rows, for training on two sets of images side by side."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.loaders.batches import ShuffledBatches, WeightedBatches
from histo_monai.data.loaders.labeled import LabeledLoader, PatchReading
from histo_monai.data.loaders.loaders import Patches
from histo_monai.data.loaders.resident import PatchLoader
from histo_monai.utils.errors import InputError
from histo_monai.utils.ranks import num_ranks, this_rank


def shuffled(
    reading: PatchReading,
    rows: pd.DataFrame,
    batch_size: int,
    *,
    seed: int,
    purpose: str,
    num_batches: int | None = None,
) -> LabeledLoader:
    """Full shuffled batches of rows (`ShuffledBatches`), split among the processes of `ignite.distributed`."""
    dataset = reading.dataset(rows)
    batches = ShuffledBatches(
        len(rows),
        batch_size,
        num_batches=num_batches,
        seed=seed,
        purpose=purpose,
        slides=dataset.slides_to_mix,
        rank=this_rank(),
        world_size=num_ranks(),
    )
    return reading.stream(dataset, rows, batches)


def for_statistics(
    reading: PatchReading, rows: pd.DataFrame, num: int, batch_size: int, seed: int
) -> LabeledLoader | None:
    """Up to `num` random rows in full batches, each once, for `take_statistics`; None for no rows."""
    num = min(num, len(rows))
    if num == 0:
        return None
    size = min(batch_size, num)
    # Sample all slides at once: a few hundred rows represent them.
    batches = ShuffledBatches(len(rows), size, num_batches=num // size, seed=seed, purpose="statistics")
    return reading.loader(reading.dataset(rows), rows, batches)


def two_streams(
    reading: PatchReading,
    labeled: pd.DataFrame,
    unlabeled: pd.DataFrame,
    batch_size: int,
    *,
    mu: int,
    seed: int,
    num_batches: int | None = None,
    chances: NDArray[np.float64] | None = None,
) -> tuple[LabeledLoader, LabeledLoader]:
    """A labeled and an unlabeled stream with equally many batches.

    Args:
        labeled: Rows whose labels are used.
        unlabeled: Rows whose labels are ignored; includes the labeled rows.
        batch_size: Labeled patches per batch.
        mu: Unlabeled patches per labeled one.
        num_batches: Batches per epoch; None: enough for every row of both tables.
        chances: Sampling probabilities of the unlabeled rows (`WeightedBatches`); None: uniform passes.
    """
    num = num_batches or max(-(-len(labeled) // batch_size), -(-len(unlabeled) // (mu * batch_size)))
    stream = partial(shuffled, reading, seed=seed, num_batches=num)
    of_labeled = stream(labeled, batch_size, purpose="labeled")
    if chances is None:
        return of_labeled, stream(unlabeled, mu * batch_size, purpose="unlabeled")
    of_rank = {"rank": this_rank(), "world_size": num_ranks()}
    batches = WeightedBatches(
        chances, mu * batch_size, num_batches=num, seed=seed, purpose="unlabeled", **of_rank
    )
    return of_labeled, reading.stream(reading.dataset(unlabeled), unlabeled, batches)


class SideBySide:
    """Two loaders of equal length, one batch of each at a time.

    Raises:
        InputError: The lengths differ.
    """

    def __init__(self, labeled: PatchLoader, unlabeled: PatchLoader) -> None:
        if len(labeled) != len(unlabeled):
            raise InputError(
                f"two streams: {len(labeled)} labeled and {len(unlabeled)} unlabeled batches. Fix: use equal numbers."
            )
        self._loaders = (labeled, unlabeled)
        self.batch_sampler = self
        samplers: list[Any] = [loader.batch_sampler for loader in self._loaders]
        self.images_per_step = sum(sampler.batch_size for sampler in samplers)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of both streams."""
        for loader in self._loaders:
            loader.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]  # ours has it

    def __len__(self) -> int:
        return len(self._loaders[0])

    def __iter__(self) -> Iterator[tuple[Patches, Patches]]:
        return zip(*self._loaders, strict=True)
