"""Picture of an indexed slide: tissue, patch centers of pretraining, labeled squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.reports.drawing import COLORS
from histo_monai.slides import Slide
from histo_monai.slides.tiles.usable import TissueRules, UsableTissue, usable_tissue

Pixels = NDArray[np.uint8]
CENTER, SCORED = COLORS[5], COLORS[1]
"""Color of patch centers of pretraining, and of squares with a score."""
EXCLUDED = "#ffb000"
"""Tint of areas that are not used."""
_DIMMED = 0.45
"""Fraction of white mixed into the background."""
_EXCLUDED_WEIGHT = 0.5
"""Fraction of `EXCLUDED` mixed into excluded areas."""
_DOT_PX = 2
_BORDER = (90, 90, 90)


def class_colors(classes: list[str]) -> dict[str, str]:
    """Color of each class, different from the dots'; colors repeat if there are many classes."""
    colors = COLORS[1:5]
    return {name: colors[i % len(colors)] for i, name in enumerate(classes)}


@dataclass(frozen=True)
class Survey:
    """Picture of a slide and its patches.

    Attributes:
        path: slide file.
        mpp: µm per level-0 pixel; None: from the file.
        rules: for the tissue that is used.
        centers_yx: patch centers of pretraining, (n, 2), level-0 pixels.
        outlines: file of the user's outlines of tissue and artefacts; empty: none.
        squares: for each class its color, the centers of labeled squares, (m, 2), level-0 pixels, and their side, µm.
    """

    path: Path
    mpp: float | None
    rules: TissueRules
    outlines: str
    centers_yx: NDArray[np.float64]
    squares: Sequence[tuple[str, NDArray[np.float64], float]]

    def tissue(self, slide: Slide) -> UsableTissue:
        """Usable tissue of an open slide.

        Raises:
            SlideError: the slide is damaged.
        """
        return usable_tissue(slide, self.rules, self.outlines)

    def drawn(self, slide: Slide, mpp: float, tissue: UsableTissue) -> Pixels:
        """Picture (h, w, 3), uint8: background pale with a border line, excluded areas tinted, centers as dots.

        Squares have the colors of their classes.

        Args:
            slide: open slide.
            mpp: µm/px of the picture.

        Raises:
            SlideError: the slide is damaged.
        """
        thumbnail = slide.thumbnail(mpp)
        height, width, _ = thumbnail.shape
        mask, excluded = (
            cv2.resize(of.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST)
            for of in (tissue.mask, tissue.excluded)
        )
        picture = thumbnail.astype(np.float32)
        picture[mask == 0] += (255 - picture[mask == 0]) * _DIMMED
        picture[excluded > 0] += (np.array(_rgb(EXCLUDED)) - picture[excluded > 0]) * _EXCLUDED_WEIGHT
        out: Pixels = np.ascontiguousarray(np.rint(picture).astype(np.uint8))
        border, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
        cv2.drawContours(out, border, -1, _BORDER, 1, cv2.LINE_AA)
        scale = slide.mpp / mpp
        for y, x in np.rint(self.centers_yx * scale).astype(int).tolist():
            cv2.circle(out, (x, y), _DOT_PX + 1, (255, 255, 255), -1, cv2.LINE_AA)
            cv2.circle(out, (x, y), _DOT_PX, _rgb(CENTER), -1, cv2.LINE_AA)
        for color, places, side_um in self.squares:
            half = max(side_um / mpp / 2, 2.0)
            for y, x in (places * scale).tolist():
                corners = ((round(x - half), round(y - half)), (round(x + half), round(y + half)))
                cv2.rectangle(out, *corners, _rgb(color), 2)
        return out


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
