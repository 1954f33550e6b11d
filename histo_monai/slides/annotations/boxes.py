"""Pairs of overlapping boxes, without comparing every pair."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FANOUT = 16
_CHUNK = 4096
_MOST_PAIRS = 2**21


class BoxTree:
    """Boxes in a tree with fan-out 16, sort-tile-recursive packing (STR, Leutenegger et al. 1997).

    Boxes may have integer labels; `pairs` then returns only boxes of other labels and skips nodes of one label.
    """

    def __init__(self, low_yx: Floats, high_yx: Floats, labels: Ints | None = None) -> None:
        """Build the tree from the corners of n boxes, shape (n, 2), and their labels, shape (n,)."""
        labels = np.arange(len(low_yx)) if labels is None else labels
        middle = low_yx + high_yx
        column = np.zeros(len(middle), np.int64)
        in_column = _FANOUT * max(1, math.isqrt(max(0, len(middle) - 1) // _FANOUT) + 1)
        column[np.lexsort((labels, middle[:, 0], middle[:, 1]))] = np.arange(len(middle)) // in_column
        self._order = np.lexsort((labels, middle[:, 0], column))
        self._levels = [(low_yx[self._order], high_yx[self._order], *[labels[self._order]] * 2)]
        while len(self._levels[-1][0]) > _FANOUT:
            starts = np.arange(0, len(self._levels[-1][0]), _FANOUT)
            low, high, first, last = self._levels[-1]
            self._levels.append(
                (
                    np.minimum.reduceat(low, starts),
                    np.maximum.reduceat(high, starts),
                    np.minimum.reduceat(first, starts),
                    np.maximum.reduceat(last, starts),
                )
            )

    def pairs(self, low_yx: Floats, high_yx: Floats, labels: Ints | None = None) -> Iterator[tuple[int, int]]:
        """Numbers (query box, tree box) of boxes with a common area, in ascending order.

        Args:
            low_yx: Upper left corners of the query boxes, shape (m, 2).
            high_yx: Lower right corners.
            labels: Shape (m,); None finds boxes of any label.
        """
        asked = np.full(len(low_yx), -1) if labels is None else labels
        waiting = [np.arange(at, min(at + _CHUNK, len(asked))) for at in range(0, len(asked), _CHUNK)][::-1]
        while waiting:
            numbers = waiting.pop()
            pairs = self._below(numbers, low_yx, high_yx, asked)
            if pairs is None:
                half = len(numbers) // 2
                waiting += [numbers[half:], numbers[:half]]
                continue
            yield from zip(*pairs, strict=True)

    def _below(
        self, numbers: Ints, low_yx: Floats, high_yx: Floats, labels: Ints
    ) -> tuple[Sequence[int], Sequence[int]] | None:
        """Pairs of some query boxes; None if the caller must pass fewer."""
        query = np.repeat(numbers, len(self._levels[-1][0]))
        node = np.tile(np.arange(len(self._levels[-1][0])), len(numbers))
        for depth, (low, high, first, last) in enumerate(self._levels[::-1], start=1):
            if len(query) > _MOST_PAIRS and len(numbers) > 1:
                return None
            meets = (low[node] < high_yx[query]).all(axis=1) & (high[node] > low_yx[query]).all(axis=1)
            other = (first[node] != labels[query]) | (last[node] != labels[query])
            query, node = query[meets & other], node[meets & other]
            if depth < len(self._levels):
                num_below = len(self._levels[-depth - 1][0])
                query = np.repeat(query, _FANOUT)
                node = (node[:, None] * _FANOUT + np.arange(_FANOUT)).ravel()
                query, node = query[node < num_below], node[node < num_below]
        boxes = self._order[node]
        order = np.lexsort((boxes, query))
        return query[order].tolist(), boxes[order].tolist()
