"""Endless streams of rows, for trainings in which two sets of images go side by side."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import ignite.distributed as idist
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Sampler

from histo_monai.errors import InputError
from histo_monai.loading.labeled import LabeledLoader, PatchReading
from histo_monai.loading.loaders import Patches
from histo_monai.loading.order import check_divides, shuffled_order
from histo_monai.randomness import generator
from histo_monai.slides import MAX_OPEN


class ShuffledBatches(Sampler[list[int]]):
    """Full batches of an epoch: one shuffled pass over the rows after the other, until the epoch has its batches.

    A pass ends in the middle of a batch if need be and the next one begins there, reshuffled; so every batch is full,
    and with at least `ceil(num_samples / batch_size)` batches every row comes at least once.

    Args:
        num_samples: rows of the table, at least 1.
        batch_size: rows of a batch; more than there are rows means that some come twice.
        num_batches: of an epoch; None for as few as show every row.
        seed: of the order.
        purpose: tells apart streams of one seed.
        slides: number of each row's slide, to read few slides at a time, see `order.shuffled_order`.
        rank: this process, which takes a contiguous share of each batch.
        world_size: number of processes.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        *,
        num_batches: int | None = None,
        seed: int,
        purpose: str,
        slides: NDArray[np.int32] | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if num_samples < 1:
            raise InputError(f"no {purpose} patch to train on")
        check_divides(batch_size, world_size)
        self.num_samples = num_samples
        self.batch_size = batch_size
        self.num_batches = num_batches or -(-num_samples // batch_size)
        self.seed = seed
        self.purpose = purpose
        self.slides = slides
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration gives."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        waiting = np.empty(0, dtype=np.int64)
        passes = 0
        for _ in range(self.num_batches):
            while len(waiting) < self.batch_size:
                draw = generator(self.seed, self.purpose, self.epoch, passes)
                order = shuffled_order(draw, self.num_samples, self.slides, MAX_OPEN)
                waiting = np.concatenate([waiting, order])
                passes += 1
            share = self.batch_size // self.world_size
            yield waiting[self.rank * share : (self.rank + 1) * share].tolist()
            waiting = waiting[self.batch_size :]


class DrawnBatches(Sampler[list[int]]):
    """Full batches of an epoch, of rows that are drawn with chances of their own, again and again.

    Args:
        chances: probability of each row, shape (n,); their sum is 1.
        batch_size: rows of a batch.
        num_batches: of an epoch.
        seed: of the draw.
        purpose: tells apart streams of one seed.
        rank: this process, which takes a contiguous share of each batch.
        world_size: number of processes.
    """

    def __init__(
        self,
        chances: NDArray[np.float64],
        batch_size: int,
        *,
        num_batches: int,
        seed: int,
        purpose: str,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        check_divides(batch_size, world_size)
        self.chances = chances
        self.batch_size = batch_size
        self.num_batches = num_batches
        self.seed = seed
        self.purpose = purpose
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration gives."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        draw = generator(self.seed, self.purpose, self.epoch)
        drawn = draw.choice(len(self.chances), (self.num_batches, self.batch_size), p=self.chances)
        share = self.batch_size // self.world_size
        for rows in drawn:
            yield rows[self.rank * share : (self.rank + 1) * share].tolist()


def shuffled(
    reading: PatchReading,
    rows: pd.DataFrame,
    batch_size: int,
    *,
    seed: int,
    purpose: str,
    num_batches: int | None = None,
) -> LabeledLoader:
    """Full batches of rows, see `ShuffledBatches`, of which each process of `ignite.distributed` reads its share."""
    dataset = reading.dataset(rows)
    batches = ShuffledBatches(
        len(rows),
        batch_size,
        num_batches=num_batches,
        seed=seed,
        purpose=purpose,
        slides=dataset.slides_to_mix,
        rank=idist.get_rank(),
        world_size=idist.get_world_size(),
    )
    return reading.loader(dataset, rows, batches)


def for_statistics(
    reading: PatchReading, rows: pd.DataFrame, num: int, batch_size: int, seed: int
) -> LabeledLoader | None:
    """Up to `num` rows drawn at random, each once, in full batches, see `take_statistics`; None for none."""
    num = min(num, len(rows))
    if num == 0:
        return None
    size = min(batch_size, num)
    # Of all slides at once: a few hundred rows are to stand for them all.
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
    """Streams of equally many batches.

    Args:
        reading: how rows are read.
        labeled: rows whose labels are used.
        unlabeled: rows whose labels are not looked at, the labeled ones among them.
        batch_size: labeled patches of a batch.
        mu: unlabeled patches per labeled one.
        seed: of the order.
        num_batches: of an epoch; None for as many as show every row of both at least once.
        chances: of the unlabeled rows, which are drawn by them, see `DrawnBatches`; None: each as often as the others.
    """
    num = num_batches or max(-(-len(labeled) // batch_size), -(-len(unlabeled) // (mu * batch_size)))
    stream = partial(shuffled, reading, seed=seed, num_batches=num)
    of_labeled = stream(labeled, batch_size, purpose="labeled")
    if chances is None:
        return of_labeled, stream(unlabeled, mu * batch_size, purpose="unlabeled")
    of_rank = {"rank": idist.get_rank(), "world_size": idist.get_world_size()}
    batches = DrawnBatches(
        chances, mu * batch_size, num_batches=num, seed=seed, purpose="unlabeled", **of_rank
    )
    return of_labeled, reading.loader(reading.dataset(unlabeled), unlabeled, batches)


class SideBySide:
    """Two loaders of the same length, one batch of each at a time.

    Raises:
        InputError: their lengths differ.
    """

    def __init__(self, labeled: DataLoader[Patches], unlabeled: DataLoader[Patches]) -> None:
        if len(labeled) != len(unlabeled):
            raise InputError(f"{len(labeled)} labeled batches beside {len(unlabeled)} unlabeled ones")
        self._loaders = (labeled, unlabeled)
        self.batch_sampler = self
        samplers: list[Any] = [loader.batch_sampler for loader in self._loaders]
        self.images_per_step = sum(sampler.batch_size for sampler in samplers)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of both streams."""
        for loader in self._loaders:
            loader.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]  # ours has it

    def __len__(self) -> int:
        return len(self._loaders[0])

    def __iter__(self) -> Iterator[tuple[Patches, Patches]]:
        return zip(*self._loaders, strict=True)
