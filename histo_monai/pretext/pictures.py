"""Pictures of what a pretext task shows and what the network answers; for TensorBoard and `dvc plots`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_GREEN, _RED = "#1a7f37", "#b2182b"


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
    figure, axes = _grid_of_threes(num, columns)
    for i in range(num):
        right = tuple(shown[i]) == tuple(predicted[i])
        for place, axis in enumerate(axes[i]):
            true, guess = mpps[shown[i][place]], mpps[predicted[i][place]]
            _draw(axis, patches[i, shown[i][place]], right)
            axis.set_title(
                f"is {true:g}, said {guess:g} µm/px", fontsize=7, color="black" if true == guess else _RED
            )
    return _pixels(figure)


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
    figure, axes = _grid_of_threes(num, columns)
    for i in range(num):
        nearest = int(similarities[i].argmax())
        for axis, view, title in zip(
            axes[i],
            (queries[i], keys[i], keys[nearest]),
            (
                "query",
                f"its key, cosine {similarities[i, i]:.3f}",
                f"nearest key, cosine {similarities[i, nearest]:.3f}",
            ),
            strict=True,
        ):
            _draw(axis, view, right=nearest == i)
            axis.set_title(title, fontsize=7)
    return _pixels(figure)


def _grid_of_threes(num: int, columns: int) -> tuple[Figure, np.ndarray]:
    """A figure and its axes, Shape (at least num, 3); those left over stay blank."""
    rows = -(-num // columns)
    figure = Figure(figsize=(columns * 4.6, rows * 1.95), dpi=110, layout="constrained")
    axes = figure.subplots(rows, columns * 3, squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    return figure, axes.reshape(rows * columns, 3)


def _draw(axis: Axes, patch: np.ndarray, right: bool) -> None:
    axis.imshow(patch.transpose(1, 2, 0), interpolation="nearest", vmin=0, vmax=1)
    axis.axis("on")
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_color(_GREEN if right else _RED)
        spine.set_linewidth(2.5)


def _pixels(figure: Figure) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
