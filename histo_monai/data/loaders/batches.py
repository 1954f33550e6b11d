"""Batch samplers: the rows of each batch, epoch after epoch. All randomness of loading is in this module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from histo_monai.data.loaders.order import shuffled_order
from histo_monai.slides import MAX_OPEN
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator

Rows = NDArray[np.int64]


class Batches(Sampler[list[int]], ABC):
    """Row numbers of the batches of an epoch, for this process.

    The batches are a function of (seed, epoch) alone. Several processes split each batch into contiguous parts of equal
    size, so their union equals the batch of a single process.

    Args:
        batch_size: Rows per batch of all processes together.
        seed: Seed of the order; None: the table's order, and the last batch may be shorter.
        purpose: Name of the random stream.

    Raises:
        InputError: With a seed: the batch does not divide among the processes.
    """

    def __init__(
        self,
        num_batches: int,
        batch_size: int,
        *,
        seed: int | None,
        purpose: str,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if seed is not None and batch_size % world_size:
            raise InputError(
                f"batch_size: {batch_size} does not divide among {world_size} processes. Fix: make it a multiple, "
                "or set HISTO_MONAI_RANKS."
            )
        self.num_batches = num_batches
        self.batch_size = batch_size
        self.seed = seed
        self.purpose = purpose
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    @property
    def most_rows(self) -> int:
        """Most rows of a batch in this process."""
        return -(-self.batch_size // self.world_size)

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        for rows in self.whole():
            yield np.array_split(rows, self.world_size)[self.rank].tolist()

    @abstractmethod
    def whole(self) -> Iterator[Rows]:
        """Batches of all processes together."""

    def rng(self, *keys: int) -> np.random.Generator:
        """Random generator of the epoch; keys separate several generators."""
        assert self.seed is not None
        return generator(self.seed, self.purpose, self.epoch, *keys)


class EpochBatches(Batches):
    """Every row once; with a seed, in random order without the incomplete last batch.

    Args:
        num_samples: Rows of the table.
        seed: Seed of the order; None: the table's order with a shorter last batch (validation).
        slides: Slide number of each row, to read few slides at a time (`order.shuffled_order`).

    Raises:
        InputError: With a seed: the batch exceeds the table or does not divide among the processes.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        *,
        seed: int | None,
        rank: int = 0,
        world_size: int = 1,
        slides: NDArray[np.int32] | None = None,
    ) -> None:
        full, left = divmod(num_samples, batch_size)
        num_batches = full + (seed is None and left > 0)
        super().__init__(
            num_batches, batch_size, seed=seed, purpose="batches", rank=rank, world_size=world_size
        )
        if seed is not None and not full:
            raise InputError(
                f"batch_size: {num_samples} training samples do not fill a batch of {batch_size}. Fix: lower it."
            )
        self.num_samples = num_samples
        self.slides = slides

    def whole(self) -> Iterator[Rows]:
        """Batches of all processes together."""
        rows = np.arange(self.num_samples)
        if self.seed is not None:
            rows = shuffled_order(self.rng(), self.num_samples, self.slides, MAX_OPEN)
        for number in range(self.num_batches):
            yield rows[number * self.batch_size : (number + 1) * self.batch_size]


class ShuffledBatches(Batches):
    """Full batches from one shuffled pass after another.

    A new pass may begin inside a batch, so every batch is full. At least `ceil(num_samples / batch_size)` batches
    contain every row.

    Args:
        num_samples: Rows of the table, at least 1.
        batch_size: Rows per batch of all processes; more than the table's rows repeats rows.
        num_batches: Batches per epoch; None: enough for every row.
        purpose: Name of the random stream.
        slides: Slide number of each row, to read few slides at a time (`order.shuffled_order`).

    Raises:
        InputError: The table is empty, or the batch does not divide among the processes.
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
            raise InputError(f"{purpose}: no patch to train on. Fix: add patches.")
        num_batches = num_batches or -(-num_samples // batch_size)
        super().__init__(
            num_batches, batch_size, seed=seed, purpose=purpose, rank=rank, world_size=world_size
        )
        self.num_samples = num_samples
        self.slides = slides

    def whole(self) -> Iterator[Rows]:
        """Batches of all processes together."""
        waiting = np.empty(0, dtype=np.int64)
        passes = 0
        for _ in range(self.num_batches):
            while len(waiting) < self.batch_size:
                order = shuffled_order(self.rng(passes), self.num_samples, self.slides, MAX_OPEN)
                waiting = np.concatenate([waiting, order])
                passes += 1
            yield waiting[: self.batch_size]
            waiting = waiting[self.batch_size :]


class WeightedBatches(Batches):
    """Full batches of rows sampled with replacement.

    Args:
        chances: Probability of each row, shape (n,); their sum is 1.
        purpose: Name of the random stream.

    Raises:
        InputError: The batch does not divide among the processes.
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
        super().__init__(
            num_batches, batch_size, seed=seed, purpose=purpose, rank=rank, world_size=world_size
        )
        self.chances = chances

    def whole(self) -> Iterator[Rows]:
        """Batches of all processes together."""
        yield from self.rng().choice(len(self.chances), (self.num_batches, self.batch_size), p=self.chances)
