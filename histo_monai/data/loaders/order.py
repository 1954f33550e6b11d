"""Random row orders, over all rows or over a window of slides.

Opening a slide for a row doubles the row's cost. So a table with more slides than a process keeps open, and more rows
than its cache holds, is read in windows. The shuffled rows of each slide are cut into equal blocks, and the blocks of
all slides are shuffled. A window mixes as many blocks as the process keeps slides open. Every row occurs once, every
window holds a random subset of the slides, and the order within a window is random. Smaller tables get a random order
of all rows.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.counting import stable_order

BLOCK_ROWS = 128
"""Most rows per block of a slide: eight reading processes open a slide for sixteen rows each."""


def shuffled_order(
    rng: np.random.Generator, num_rows: int, slides: NDArray[np.int32] | None, window: int
) -> NDArray[np.int64]:
    """A random order of rows, each once, shape (num_rows,).

    Args:
        slides: Slide number of each row, shape (num_rows,); None: one order of all rows.
        window: Blocks mixed at a time, at least 1; limits the slides read at a time.
    """
    order = rng.permutation(num_rows)
    if slides is None:
        return order
    by_slide = order[stable_order(slides[order])]
    ends = np.flatnonzero(np.r_[np.diff(slides[by_slide]) != 0, True]) + 1
    count = np.diff(ends, prepend=0)
    rank = np.arange(num_rows) - np.repeat(ends - count, count)
    num_blocks = -(-count // BLOCK_ROWS)
    first_block = np.cumsum(num_blocks) - num_blocks
    block = np.repeat(first_block, count) + rank * np.repeat(num_blocks, count) // np.repeat(count, count)
    window_of_row = (rng.permutation(int(num_blocks.sum())) // window).astype(np.int32)[block]
    mixed = rng.permutation(num_rows)
    return by_slide[mixed][stable_order(window_of_row[mixed])]


def slides_to_mix(slides: NDArray[np.int32], *, max_open: int, num_cached: int) -> NDArray[np.int32] | None:
    """The slides of rows if reading few at a time is faster, else None.

    Args:
        slides: Slide number of each row; negative for an image file.
        max_open: Open slides per process.
        num_cached: Rows in the cache.
    """
    is_square = slides >= 0
    if len(slides) <= num_cached or len(pd.unique(slides[is_square])) <= max_open:
        return None
    return slides
