"""Common parts of figures: colors, axes, figures without a display, pixels."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from histo_monai.utils import escapes

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colorblind-safe colors (Okabe & Ito 2008)."""
INK, GRAY, PALE = "#333333", "#767676", "#b0b0b0"
_DPI = 100
FAST_PNG = {"compress_level": 3}
"""Options of Pillow for pictures of slides: a third of the time, four percent more bytes than its default."""


def new_figure(width: float, height: float) -> Figure:
    """White figure with constrained layout, without a display; size in inches."""
    figure = Figure(figsize=(width, height), dpi=_DPI, layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08))
    figure.set_facecolor("white")
    return figure


def plain(axis: Axes) -> None:
    """Style an axis: two pale spines, light grid, dark labels."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(PALE)
    axis.tick_params(color=PALE, labelcolor=INK)
    axis.grid(color="#eeeeee", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.xaxis.label.set_color(INK)
    axis.yaxis.label.set_color(INK)


def drawn(figure: Figure) -> np.ndarray:
    """Pixels of a figure, (H, W, 3), uint8."""
    canvas = FigureCanvasAgg(figure)
    escapes.figure(figure)
    figure.draw_without_rendering()  # long names need a second layout pass
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
