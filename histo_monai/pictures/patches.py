"""Patches side by side in one picture, each with a frame: what the pictures of all trainings are made of."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

RIGHT, WRONG, PLAIN = "#1a7f37", "#b2182b", "#777777"


def grid_of_threes(num: int, columns: int) -> tuple[Figure, np.ndarray]:
    """A figure and its axes, Shape (at least num, 3); off until something is shown in them."""
    rows = -(-num // columns)
    figure = Figure(figsize=(columns * 4.6, rows * 1.95), dpi=110, layout="constrained")
    axes = figure.subplots(rows, columns * 3, squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    return figure, axes.reshape(rows * columns, 3)


def show(axis: Axes, patch: np.ndarray) -> None:
    """A patch, Shape (H, W, 3), 0..1, pixel by pixel and without ticks."""
    axis.imshow(patch, interpolation="nearest", vmin=0, vmax=1)
    axis.axis("on")
    axis.set_xticks([])
    axis.set_yticks([])


def frame(axis: Axes, color: str) -> None:
    """A frame around what is shown."""
    for spine in axis.spines.values():
        spine.set_color(color)
        spine.set_linewidth(2.5)


def pixels(figure: Figure) -> np.ndarray:
    """The pixels of a figure, Shape (H, W, 3), uint8."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
