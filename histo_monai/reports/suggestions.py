"""What is worth labelling next, as pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from histo_monai.reports.drawing import PALE, drawn, new_figure

MAX_SHOWN = 96
_COLUMNS = 8
_MAX_NAME = 18


def suggested(patches: np.ndarray, slide_ids: Sequence[str], said: Sequence[str]) -> np.ndarray:
    """The suggested fields in order of choice, each below its rank, its slide and what the model says of it.

    Args:
        patches: Shape (n, 3, P, P), uint8, what the model saw; the first `MAX_SHOWN` are drawn.
        slide_ids: n of them; long ones are shortened in the middle.
        said: n texts.

    Returns:
        Shape (H, W, 3), uint8.
    """
    num = min(len(patches), MAX_SHOWN)
    rows = -(-num // _COLUMNS)
    height = rows * 1.95
    figure = new_figure(_COLUMNS * 1.5, height)
    figure.set_layout_engine("none")  # Constraints take seconds here, and all axes are alike.
    figure.subplots_adjust(
        left=0.01, right=0.99, bottom=0.05 / height, top=1 - 0.5 / height, wspace=0.06, hspace=0.36
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
        axis.set_title(f"{i + 1} · {_short(slide_ids[i])}\n{said[i]}", fontsize=7)
    return drawn(figure)


def _short(name: str) -> str:
    half = _MAX_NAME // 2
    return name if len(name) <= _MAX_NAME else f"{name[:half]}…{name[1 - half :]}"
