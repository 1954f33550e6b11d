"""Triples of patches with predictions of their order; for TensorBoard and `dvc plots`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from histo_monai.pictures.patches import RIGHT, WRONG, Sheet


def mosaic_of_triples(
    patches: np.ndarray,
    shown: Sequence[tuple[int, ...]],
    predicted: Sequence[tuple[int, ...]],
    mpps: Sequence[float],
    num: int = 8,
    columns: int = 2,
) -> np.ndarray:
    """Triples in the order in which they were shown; under each its true and its predicted resolutions.

    Args:
        patches: Shape (n, 3, 3, P, P), float32, 0..1, finest first.
        shown: per triple, the resolution (0 finest) at each place.
        predicted: the same as the network has it; green frame where it is right, red where not.
        mpps: µm/px of the three resolutions.
        num: how many triples to draw.
        columns: triples side by side.

    Returns:
        Shape (H, W, 3), uint8.
    """
    num = min(num, len(patches))
    sheet = Sheet(-(-num // columns), columns * 3, side_in=1.4)
    for i in range(num):
        right = tuple(shown[i]) == tuple(predicted[i])
        row, column = divmod(i, columns)
        for place, scale in enumerate(shown[i]):
            true, guess = mpps[scale], mpps[predicted[i][place]]
            sheet.show(
                (row, 3 * column + place),
                patches[i, scale],
                f"is {true:g}, said {guess:g} µm/px",
                color="black" if true == guess else WRONG,
                frame=RIGHT if right else WRONG,
            )
    return sheet.pixels()
