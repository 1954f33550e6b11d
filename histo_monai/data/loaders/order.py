"""Random orders of rows: of all at once, or, where slides would be opened again and again, of some slides at a time.

A row that is read from a slide which is not open costs twice as much. So where a table has more slides than a process
keeps open, and more rows than it keeps in memory, an epoch takes the slides in windows: the rows of each slide,
shuffled, are cut into equal shares; the shares of all slides are shuffled; as many of them at a time are mixed as the
process keeps slides open. Every row comes once, every window holds a random draw of the slides, and within a window
the order is random. Where there are fewer slides or fewer rows, it is a random order of all.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.counting import stable_order

SHARE_ROWS = 128
"""Most rows of a slide that come near each other: each of eight reading processes opens a slide for sixteen of them."""


def shuffled_order(
    draw: np.random.Generator, num_rows: int, slides: NDArray[np.int32] | None, window: int
) -> NDArray[np.int64]:
    """A random order of rows.

    Args:
        draw: what is random is drawn from it.
        slides: number of each row's slide, shape (num_rows,); None for an order of all rows at once.
        window: shares that are mixed at a time, at least 1; no more slides are read at a time than these.

    Returns:
        Each row once, shape (num_rows,).
    """
    order = draw.permutation(num_rows)
    if slides is None:
        return order
    by_slide = order[stable_order(slides[order])]
    ends = np.flatnonzero(np.r_[np.diff(slides[by_slide]) != 0, True]) + 1
    count = np.diff(ends, prepend=0)
    rank = np.arange(num_rows) - np.repeat(ends - count, count)
    shares = -(-count // SHARE_ROWS)
    before = np.cumsum(shares) - shares
    share = np.repeat(before, count) + rank * np.repeat(shares, count) // np.repeat(count, count)
    window_of_row = (draw.permutation(int(shares.sum())) // window).astype(np.int32)[share]
    mixed = draw.permutation(num_rows)
    return by_slide[mixed][stable_order(window_of_row[mixed])]


def slides_to_mix(slides: NDArray[np.int32], *, max_open: int, num_kept: int) -> NDArray[np.int32] | None:
    """The slides of rows where it pays to read few of them at a time, or None.

    Args:
        slides: number of each row's slide; negative for a row that is an image of its own.
        max_open: slides that a process keeps open.
        num_kept: rows that it keeps in memory.
    """
    is_square = slides >= 0
    if len(slides) <= num_kept or len(pd.unique(slides[is_square])) <= max_open:
        return None
    return slides
