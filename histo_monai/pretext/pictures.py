"""Pictures of what a pretext task shows and what the network answers; for TensorBoard and `dvc plots`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


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
    rows = -(-num // columns)
    figure = Figure(figsize=(columns * 4.6, rows * 1.95), dpi=110, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns * 3, squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for i in range(num):
        right = tuple(shown[i]) == tuple(predicted[i])
        for place in range(3):
            axis = axes[i // columns, (i % columns) * 3 + place]
            axis.imshow(
                patches[i, shown[i][place]].transpose(1, 2, 0), interpolation="nearest", vmin=0, vmax=1
            )
            true, guess = mpps[shown[i][place]], mpps[predicted[i][place]]
            axis.set_title(
                f"is {true:g}, said {guess:g} µm/px",
                fontsize=7,
                color="black" if true == guess else "#b2182b",
            )
            axis.axis("on")
            axis.set_xticks([])
            axis.set_yticks([])
            for spine in axis.spines.values():
                spine.set_color("#1a7f37" if right else "#b2182b")
                spine.set_linewidth(2.5)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
