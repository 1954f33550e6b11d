"""Picture of views of patches and their nearest views of the batch."""

from __future__ import annotations

import numpy as np

from histo_monai.training.pictures.patches import RIGHT, WRONG, Sheet


def mosaic_of_matches(
    first: np.ndarray,
    second: np.ndarray,
    similarities: np.ndarray,
    *,
    names: tuple[str, str],
    num: int = 8,
    columns: int = 2,
) -> np.ndarray:
    """Image of first views, own second views, and nearest second views.

    Args:
        first: Shape (n, 3, P, P), float32, 0..1.
        second: shape and range of `first`; row i shows the patch of first view i.
        similarities: Shape (n, n): cosine of each first (row) and second view. Green frame: the own view is nearest;
            red: not.
        names: of a first and of a second view.

    Returns:
        Shape (H, W, 3), uint8.
    """
    num = min(num, len(first))
    sheet = Sheet(-(-num // columns), columns * 3, side_in=1.4)
    for i in range(num):
        nearest = int(similarities[i].argmax())
        row, column = divmod(i, columns)
        views = (
            (first[i], names[0]),
            (second[i], f"its {names[1]}, cosine {similarities[i, i]:.3f}"),
            (second[nearest], f"nearest {names[1]}, cosine {similarities[i, nearest]:.3f}"),
        )
        for place, (view, words) in enumerate(views):
            frame = RIGHT if nearest == i else WRONG
            sheet.show((row, 3 * column + place), view, words, frame=frame)
    return sheet.pixels()
