"""One way to draw random numbers: a generator for every (seed, purpose, epoch, iteration).

No generator lives longer than the decision it is made for, so results depend neither on the number of loader
workers nor on whether a run was interrupted.
"""

from __future__ import annotations

import zlib

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
