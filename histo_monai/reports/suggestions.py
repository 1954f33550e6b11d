"""Picture of the regions to label next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from histo_monai.reports.drawing import INK, drawn
from histo_monai.reports.maps.overlay import round_length

MAX_SHOWN = 96
_COLUMNS = 8
_CELL_WIDTH, _CELL_HEIGHT, _SIDE = 1.5, 1.85, 1.42
"""Inches of a region with its caption, and of its picture."""
_FOOT = 0.25
"""Space below the regions, inches."""
_MAX_CHARACTERS = 19


def suggested(
    patches: np.ndarray, slide_ids: Sequence[str], captions: Sequence[str], fields_um: Sequence[float]
) -> np.ndarray:
    """Suggested regions by rank, (H, W, 3), uint8, with rank, slide and caption, above a scale bar.

    Args:
        patches: (n, 3, P, P), uint8; the first `MAX_SHOWN` are shown.
        slide_ids: n texts, shortened in the middle.
        captions: n texts with predictions, shortened in the middle.
        fields_um: n sides of regions, µm.
    """
    num = min(len(patches), MAX_SHOWN)
    width, height = _COLUMNS * _CELL_WIDTH, -(-num // _COLUMNS) * _CELL_HEIGHT + _FOOT
    least, most = min(fields_um[:num]), max(fields_um[:num])
    bar_um = round_length(0.4 * least)
    figure = Figure(figsize=(width, height), dpi=100)
    axis = figure.add_axes(
        (0, 0, 1, 1)
    )  # one, in inches from the upper left: an axis for each region takes seconds
    axis.axis("off")
    for i in range(num):
        left = i % _COLUMNS * _CELL_WIDTH + (_CELL_WIDTH - _SIDE) / 2
        bottom = (i // _COLUMNS + 1) * _CELL_HEIGHT
        extent = (left, left + _SIDE, bottom, bottom - _SIDE)
        axis.imshow(patches[i].transpose(1, 2, 0), interpolation="nearest", extent=extent, aspect="auto")
        ends, heights = [left + 0.08, left + 0.08 + bar_um / fields_um[i] * _SIDE], [bottom - 0.08] * 2
        axis.plot(ends, heights, color="white", linewidth=4)
        axis.plot(ends, heights, color=INK, linewidth=2)
        title = f"{i + 1} · {_short(slide_ids[i])}\n{_short(captions[i])}"
        axis.text(left + _SIDE / 2, bottom - _SIDE - 0.05, title, fontsize=7, ha="center", va="bottom")
    words = f"region width {least:g}{f' to {most:g}' * (most > least)} µm, bar {bar_um:g} µm"
    axis.text(0.06, height - 0.4 * _FOOT, words, fontsize=8, color=INK)
    axis.set(xlim=(0, width), ylim=(height, 0))
    return drawn(figure)


def _short(text: str) -> str:
    half = _MAX_CHARACTERS // 2
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:half]}…{text[-half:]}"
