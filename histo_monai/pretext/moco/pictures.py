"""Queries, their keys and the nearest keys; for TensorBoard and `dvc plots`."""

from __future__ import annotations

import numpy as np

from histo_monai.pictures.patches import RIGHT, WRONG, Sheet


def mosaic_of_matches(
    queries: np.ndarray, keys: np.ndarray, similarities: np.ndarray, num: int = 8, columns: int = 2
) -> np.ndarray:
    """The view of the query, that of its own key, and that of the key nearest to the query among those given.

    Args:
        queries: Shape (n, 3, P, P), float32, 0..1.
        keys: the same; row i shows the patch of query i.
        similarities: Shape (n, n): cosine of each query (row) and each key; green frame where its own key is the
            nearest, red where it is not.
        num: how many queries to draw.
        columns: queries side by side.

    Returns:
        Shape (H, W, 3), uint8.
    """
    num = min(num, len(queries))
    sheet = Sheet(-(-num // columns), columns * 3, side_in=1.4)
    for i in range(num):
        nearest = int(similarities[i].argmax())
        row, column = divmod(i, columns)
        views = (
            (queries[i], "query"),
            (keys[i], f"its key, cosine {similarities[i, i]:.3f}"),
            (keys[nearest], f"nearest key, cosine {similarities[i, nearest]:.3f}"),
        )
        for place, (view, words) in enumerate(views):
            frame = RIGHT if nearest == i else WRONG
            sheet.show((row, 3 * column + place), view, words, frame=frame)
    return sheet.pixels()
