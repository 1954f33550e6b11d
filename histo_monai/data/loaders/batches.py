"""Which rows of a table come together, epoch after epoch. Nothing else of loading draws a random number."""

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
    """Row numbers of the batches of an epoch, as this process takes them.

    The batches of an epoch are a function of (seed, epoch) alone. With several processes each batch is cut into
    contiguous shares of equal size, so the union of the shares is the batch that one process would have seen.

    Args:
        batch_size: of all processes together.
        seed: of what is drawn; None: nothing is, and the last batch may be shorter.
        purpose: tells apart draws of one seed.
        rank: this process.

    Raises:
        InputError: with a seed: the batch does not divide among the processes.
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
                f"batch_size {batch_size} does not divide among {world_size} processes; make it a multiple, "
                "or set HISTO_MONAI_RANKS"
            )
        self.num_batches = num_batches
        self.batch_size = batch_size
        self.seed = seed
        self.purpose = purpose
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration gives."""
        self.epoch = epoch

    @property
    def most_rows(self) -> int:
        """Of a batch, as this process takes it."""
        return -(-self.batch_size // self.world_size)

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        for rows in self.whole():
            yield np.array_split(rows, self.world_size)[self.rank].tolist()

    @abstractmethod
    def whole(self) -> Iterator[Rows]:
        """The batches of all processes together."""

    def draw(self, *keys: int) -> np.random.Generator:
        """What the epoch's batches are drawn by; keys tell apart draws of one epoch."""
        assert self.seed is not None
        return generator(self.seed, self.purpose, self.epoch, *keys)


class EpochBatches(Batches):
    """Every row once, but for those that do not fill a last batch where the order is drawn.

    Args:
        num_samples: rows of the table.
        seed: of the order; None keeps the table's order and the last, shorter batch (validation).
        slides: number of each row's slide, to read few slides at a time, see `order.shuffled_order`.

    Raises:
        InputError: see `Batches`, and with a seed: the batch is larger than the table.
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
                f"{num_samples} training samples do not fill one batch of {batch_size}; lower batch_size"
            )
        self.num_samples = num_samples
        self.slides = slides

    def whole(self) -> Iterator[Rows]:
        """See `Batches`."""
        rows = np.arange(self.num_samples)
        if self.seed is not None:
            rows = shuffled_order(self.draw(), self.num_samples, self.slides, MAX_OPEN)
        for number in range(self.num_batches):
            yield rows[number * self.batch_size : (number + 1) * self.batch_size]


class ShuffledBatches(Batches):
    """Full batches: one shuffled pass over the rows after the other, until the epoch has its batches.

    A pass ends in the middle of a batch if need be and the next one begins there, reshuffled; so every batch is full,
    and with at least `ceil(num_samples / batch_size)` batches every row comes at least once.

    Args:
        num_samples: rows of the table, at least 1.
        batch_size: see `Batches`; more than there are rows means that some come twice.
        num_batches: of an epoch; None for as few as show every row.
        purpose: tells apart streams of one seed.
        slides: number of each row's slide, to read few slides at a time, see `order.shuffled_order`.

    Raises:
        InputError: see `Batches`, and: the table has no row.
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
        num_batches = num_batches or -(-num_samples // batch_size)
        super().__init__(
            num_batches, batch_size, seed=seed, purpose=purpose, rank=rank, world_size=world_size
        )
        self.num_samples = num_samples
        self.slides = slides

    def whole(self) -> Iterator[Rows]:
        """See `Batches`."""
        waiting = np.empty(0, dtype=np.int64)
        passes = 0
        for _ in range(self.num_batches):
            while len(waiting) < self.batch_size:
                order = shuffled_order(self.draw(passes), self.num_samples, self.slides, MAX_OPEN)
                waiting = np.concatenate([waiting, order])
                passes += 1
            yield waiting[: self.batch_size]
            waiting = waiting[self.batch_size :]


class DrawnBatches(Batches):
    """Full batches of rows that are drawn with chances of their own, again and again.

    Args:
        chances: probability of each row, shape (n,); their sum is 1.
        purpose: tells apart streams of one seed.

    Raises:
        InputError: see `Batches`.
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
        """See `Batches`."""
        yield from self.draw().choice(len(self.chances), (self.num_batches, self.batch_size), p=self.chances)
