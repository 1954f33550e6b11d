"""One way to draw random numbers: a generator for every (seed, purpose, epoch, iteration).

No generator lives longer than the decision it is made for, so results depend neither on the number of loader
workers nor on whether a run was interrupted.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np


def derive_seed(seed: int, *keys: int | str) -> int:
    """A seed in 0..2**32-1 that is a fixed function of `seed` and the keys (texts by their CRC-32)."""
    return int(_sequence(seed, keys).generate_state(1)[0])


def generator(seed: int, *keys: int | str) -> np.random.Generator:
    """A fresh NumPy generator for one purpose, e.g. `generator(seed, "order", epoch, iteration)`."""
    return np.random.default_rng(_sequence(seed, keys))


def _sequence(seed: int, keys: tuple[int | str, ...]) -> np.random.SeedSequence:
    words = [zlib.crc32(key.encode()) if isinstance(key, str) else key for key in keys]
    return np.random.SeedSequence(entropy=seed, spawn_key=words)


@dataclass(frozen=True)
class Step:
    """One training step as its random decisions see it: drawn for the whole batch, used for this process's share.

    Args:
        epoch: from 1.
        iteration: within all epochs, from 1.
        rank: this process.
        world_size: number of processes; each holds an equal, contiguous share of the batch.
    """

    seed: int
    epoch: int
    iteration: int
    rank: int = 0
    world_size: int = 1

    def generator(self, purpose: str) -> np.random.Generator:
        """A fresh generator, the same in every process."""
        return generator(self.seed, purpose, self.epoch, self.iteration)

    def derive_seed(self, purpose: str) -> int:
        """A seed for generators that are not NumPy's, the same in every process."""
        return derive_seed(self.seed, purpose, self.epoch, self.iteration)

    def share(self, num_samples: int) -> tuple[slice, int]:
        """Where this process's `num_samples` lie in the whole batch, and the size of that batch."""
        return slice(self.rank * num_samples, (self.rank + 1) * num_samples), self.world_size * num_samples
