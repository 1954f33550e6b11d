"""Picture of framed patches in rows and columns."""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from histo_monai.utils import escapes

RIGHT, WRONG, NEUTRAL = "#1a7f37", "#b2182b", "#777777"

_GAP, _LINE = 0.06, 0.13
"""Margin around a patch, and height of a text line above it; inches."""


class Sheet:
    """Picture of rows and columns of patches with text above them.

    All patches use one pair of axes; one pair per patch takes five times as long, after every epoch.

    Args:
        side_in: side of a patch, inches of 110 px.
    """

    def __init__(self, rows: int, columns: int, *, side_in: float = 1.33, lines: int = 1) -> None:
        self._side = side_in
        self._width, self._height = side_in + 2 * _GAP, side_in + lines * _LINE + 2 * _GAP
        width, height = columns * self._width, rows * self._height
        self._figure = Figure(figsize=(width, height), dpi=110)
        self._axes = self._figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        self._axes.set_axis_off()

    def show(
        self,
        place: tuple[int, int],
        patch: np.ndarray,
        words: str,
        *,
        color: str = "black",
        frame: str | None = None,
    ) -> None:
        """Add a patch without resampling.

        Args:
            patch: Shape (3, H, W), float, 0..1.
            words: text above it.
            frame: color; None: a thin frame.
        """
        left = place[1] * self._width + _GAP
        top = (place[0] + 1) * self._height - _GAP - self._side
        extent = (left, left + self._side, top + self._side, top)
        image = AxesImage(self._axes, extent=extent, origin="upper", interpolation="nearest")
        image.set_data(patch.transpose(1, 2, 0))
        self._axes.add_image(image)
        side, width = self._side, 2.5 if frame else 0.8
        self._axes.add_patch(
            Rectangle((left, top), side, side, fill=False, edgecolor=frame or "black", linewidth=width)
        )
        where = (left + self._side / 2, top - _GAP / 2)
        self._axes.text(*where, words, ha="center", va="bottom", fontsize=7, color=color)

    def pixels(self) -> np.ndarray:
        """Picture (H, W, 3), uint8."""
        canvas = FigureCanvasAgg(self._figure)
        escapes.figure(self._figure)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()
