"""Nuclei along walls."""

from __future__ import annotations

import numpy as np
import pytest

from histo_monai.data.simulated.cells import structures
from histo_monai.data.simulated.cells.structures import RingKind, find_rings, wall_nuclei


def test_a_random_number_next_to_one_still_names_one_of_those_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`random * count` numbers a sprite: as a float32, 1 - 2^-53 would be 1, and name one beyond the last."""
    default_rng = np.random.default_rng

    class Highest:
        def __init__(self, seed: list[int]) -> None:
            self._rng = default_rng(seed)

        def normal(self, *arguments: float) -> np.ndarray:
            return self._rng.normal(*arguments)

        def random(self, count: int) -> np.ndarray:
            return np.full(count, 1 - 2.0**-53)

    kind = RingKind(120, (30, 40), (10, 14), 0.05, 1.1, 6, 1.0)
    rings = find_rings(kind, (0, 0, 256, 256), lambda y, x, radius: np.ones_like(y), 3)
    assert len(rings.y_um)
    monkeypatch.setattr(structures.np.random, "default_rng", Highest)
    *_, random = wall_nuclei(rings, kind, 4.0, 3)
    assert random.dtype == np.float32
    assert (random < 1).all()
    assert ((random * 320).astype(np.int64) < 320).all()
