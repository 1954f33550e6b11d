"""What all pictures of the reports share: colors, plain axes, a figure without a display, its pixels."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from histo_monai.utils import escapes

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe & Ito 2008: colors that color-blind eyes tell apart."""
INK, GRAY, PALE = "#333333", "#767676", "#b0b0b0"
_DPI = 100


def new_figure(width: float, height: float) -> Figure:
    """White, laid out by constraints, drawn without a display; inches."""
    figure = Figure(figsize=(width, height), dpi=_DPI, layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08))
    figure.set_facecolor("white")
    return figure


def plain(axis: Axes) -> None:
    """Two pale spines, a light grid behind, labels in ink."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(PALE)
    axis.tick_params(color=PALE, labelcolor=INK)
    axis.grid(color="#eeeeee", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.xaxis.label.set_color(INK)
    axis.yaxis.label.set_color(INK)


def drawn(figure: Figure) -> np.ndarray:
    """The pixels of a figure, (H, W, 3) uint8."""
    canvas = FigureCanvasAgg(figure)
    escapes.figure(figure)
    figure.draw_without_rendering()  # The layout settles in a second pass where names are long.
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
