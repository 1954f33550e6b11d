"""How many patches each slide gives."""

from __future__ import annotations

import numpy as np


def fair_shares(room: np.ndarray, wanted: int) -> np.ndarray:
    """Split `wanted` over places with limited room, as evenly as the room allows; earlier places take the remainder.

    Args:
        room: Shape (n,), what each place can take; its sum is at least `wanted`.

    Returns:
        Shape (n,), int64, sums to `wanted`, nowhere above `room`.
    """
    low, high = 0, int(room.max(initial=0))
    while low < high:  # the highest level to which all places can be filled
        level = (low + high + 1) // 2
        low, high = (level, high) if np.minimum(room, level).sum() <= wanted else (low, level - 1)
    shares = np.minimum(room, low).astype(np.int64)
    shares[np.flatnonzero(room > low)[: wanted - shares.sum()]] += 1
    return shares
