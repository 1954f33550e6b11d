"""What is worth labeling next, as pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from histo_monai.reports.drawing import PALE, drawn

MAX_SHOWN = 96
_COLUMNS = 8
_MAX_CHARACTERS = 19


def suggested(patches: np.ndarray, slide_ids: Sequence[str], captions: Sequence[str]) -> np.ndarray:
    """The suggested fields in order of choice, each below its rank, its slide and its caption.

    Args:
        patches: Shape (n, 3, P, P), uint8, what the model saw; the first `MAX_SHOWN` are drawn.
        slide_ids: n of them; long texts are shortened in the middle.
        captions: n texts, what the model predicts; shortened alike.

    Returns:
        Shape (H, W, 3), uint8.
    """
    num = min(len(patches), MAX_SHOWN)
    rows = -(-num // _COLUMNS)
    height = rows * 1.95
    figure = Figure(figsize=(_COLUMNS * 1.5, height), dpi=100)  # All axes are alike: no layout to be solved.
    figure.subplots_adjust(
        left=0.005, right=0.995, bottom=0.06 / height, top=1 - 0.4 / height, wspace=0.06, hspace=0.33
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
        axis.set_title(f"{i + 1} · {_short(slide_ids[i])}\n{_short(captions[i])}", fontsize=7)
    return drawn(figure)


def _short(text: str) -> str:
    half = _MAX_CHARACTERS // 2
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:half]}…{text[-half:]}"
