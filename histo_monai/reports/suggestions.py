"""Picture of the regions to label next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from histo_monai.reports.drawing import INK, PALE, drawn
from histo_monai.reports.maps.overlay import round_length

MAX_SHOWN = 96
_COLUMNS = 8
_FOOT = 0.25
"""Space below the regions, inches."""
_MAX_CHARACTERS = 19


def suggested(
    patches: np.ndarray, slide_ids: Sequence[str], captions: Sequence[str], field_um: float
) -> np.ndarray:
    """Suggested regions by rank, (H, W, 3), uint8, with rank, slide and caption, above a scale bar.

    Args:
        patches: (n, 3, P, P), uint8; the first `MAX_SHOWN` are shown.
        slide_ids: n texts, shortened in the middle.
        captions: n texts with predictions, shortened in the middle.
        field_um: side of a region, µm.
    """
    num = min(len(patches), MAX_SHOWN)
    rows = -(-num // _COLUMNS)
    height = rows * 1.95 + _FOOT
    bar_um = round_length(0.4 * field_um)
    bar = bar_um / field_um
    figure = Figure(figsize=(_COLUMNS * 1.5, height), dpi=100)  # equal axes need no layout
    figure.subplots_adjust(
        left=0.005,
        right=0.995,
        bottom=(0.06 + _FOOT) / height,
        top=1 - 0.4 / height,
        wspace=0.06,
        hspace=0.33,
    )
    for i, axis in enumerate(figure.subplots(rows, _COLUMNS, squeeze=False).flat):
        if i >= num:
            axis.axis("off")
            continue
        axis.imshow(patches[i].transpose(1, 2, 0), interpolation="nearest")
        axis.set_xticks([])
        axis.set_yticks([])
        for spine in axis.spines.values():
            spine.set_color(PALE)
        axis.plot([0.06, 0.06 + bar], [0.06, 0.06], color="white", linewidth=4, transform=axis.transAxes)
        axis.plot([0.06, 0.06 + bar], [0.06, 0.06], color=INK, linewidth=2, transform=axis.transAxes)
        axis.set_title(f"{i + 1} · {_short(slide_ids[i])}\n{_short(captions[i])}", fontsize=7)
    words = f"region width {field_um:g} µm, bar {bar_um:g} µm"
    figure.text(0.005, 0.4 * _FOOT / height, words, fontsize=8, color=INK)
    return drawn(figure)


def _short(text: str) -> str:
    half = _MAX_CHARACTERS // 2
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:half]}…{text[-half:]}"
