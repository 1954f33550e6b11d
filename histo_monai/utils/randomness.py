"""Random generators, one for every (seed, purpose, epoch, iteration).

No generator outlives its decision, so results depend neither on the number of workers nor on interruptions.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np


def derive_seed(seed: int, *keys: int | str) -> int:
    """A seed in 0..2**32-1, a fixed function of `seed` and the keys (texts by their CRC-32)."""
    return int(_sequence(seed, keys).generate_state(1)[0])


def generator(seed: int, *keys: int | str) -> np.random.Generator:
    """A fresh NumPy generator for one purpose, e.g. `generator(seed, "order", epoch, iteration)`."""
    return np.random.default_rng(_sequence(seed, keys))


def _sequence(seed: int, keys: tuple[int | str, ...]) -> np.random.SeedSequence:
    words = [zlib.crc32(key.encode()) if isinstance(key, str) else key for key in keys]
    return np.random.SeedSequence(entropy=seed, spawn_key=words)


@dataclass(frozen=True)
class Step:
    """Random decisions of one training step, made for the whole batch and used for this process's part.

    Args:
        epoch: From 1.
        iteration: Across all epochs, from 1.
        world_size: Number of processes; each has an equal, contiguous part of the batch.
    """

    seed: int
    epoch: int
    iteration: int
    rank: int = 0
    world_size: int = 1

    def generator(self, purpose: str) -> np.random.Generator:
        """A fresh generator, equal in every process."""
        return generator(self.seed, purpose, self.epoch, self.iteration)

    def derive_seed(self, purpose: str) -> int:
        """A seed for other generators than NumPy's, equal in every process."""
        return derive_seed(self.seed, purpose, self.epoch, self.iteration)

    def process_rows(self, num_samples: int) -> tuple[slice, int]:
        """Slice of this process's `num_samples` in the whole batch, and the size of that batch."""
        return slice(self.rank * num_samples, (self.rank + 1) * num_samples), self.world_size * num_samples
