"""Mosaic of maps: slides in rows, models in columns, as in the appendix of Srinidhi 2022."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.reports.maps.overlay import UNCOLORED, Canvas, draw_class_key, draw_color_bar
from histo_monai.slides.annotations import Region, rasterize_regions

Pixels = NDArray[np.uint8]

_CELL_PX, _GAP, _TEXT, _LINE = 240, 8, 15, 20
_FOOT = 70
_LETTER = 0.6  # mean width of a letter / height


def map_mosaic(
    rows: Sequence[tuple[str, Sequence[Pixels]]],
    columns: Sequence[str],
    quantity: str = "tumor probability",
    classes: Sequence[str] = (),
) -> Pixels:
    """Mosaic, (H, W, 3), uint8: one row per slide, one column per kind of picture, a color bar below.

    Pictures keep their aspect ratio and are scaled to one width, or one height if higher than wide. Two to four times
    the column width (240 px) looks best.

    Args:
        rows: label of a slide, such as "test_001 macro", and its pictures, each (h, w, 3), uint8, one per column.
        columns: titles.
        quantity: of the color bar; not used with several classes.
        classes: of the color key, if several.

    Raises:
        ValueError: there are no pictures, or a row has another number of pictures than columns.
    """
    for label, pictures in rows:
        if len(pictures) != len(columns):
            raise ValueError(f"row {label!r}: {len(pictures)} pictures for {len(columns)} columns")
    if not rows or not columns:
        raise ValueError(f"a mosaic takes rows and columns, got {len(rows)} and {len(columns)}")
    titles = [textwrap.fill(title, int(_CELL_PX / (1.15 * _LETTER * _TEXT))) for title in columns]
    labels = [label.replace(" ", "\n") for label, _ in rows]
    fitted = [[_fitted(picture) for picture in pictures] for _, pictures in rows]
    heights = [
        max(*(len(picture) for picture in pictures), _LINE * (1 + label.count("\n")))
        for label, pictures in zip(labels, fitted, strict=True)
    ]
    top = _GAP * 2 + _LINE * (1 + max(title.count("\n") for title in titles))
    left = _GAP * 3 + round(
        _LETTER * _TEXT * max(len(line) for label in labels for line in label.split("\n"))
    )
    right = left + len(columns) * (_CELL_PX + _GAP)
    foot = _FOOT if len(classes) < 2 else _LINE * (len(classes) + 1)
    canvas = Canvas(top + sum(heights) + _GAP * len(rows) + foot, right + _GAP)
    for number, title in enumerate(titles):
        canvas.write(
            top / 2, left + number * (_CELL_PX + _GAP) + _CELL_PX / 2, title, _TEXT, "center", bold=True
        )
    for label, pictures, height in zip(labels, fitted, heights, strict=True):
        canvas.write(top + height / 2, left / 2, label, _TEXT, "center")
        for number, picture in enumerate(pictures):
            free_y, free_x = height - picture.shape[0], _CELL_PX - picture.shape[1]
            canvas.lay(top + free_y // 2, left + number * (_CELL_PX + _GAP) + free_x // 2, picture)
        top += height + _GAP
    if len(classes) > 1:
        draw_class_key(canvas, (top + _LINE, left), classes, 1)
        canvas.write(top + _LINE, right - _GAP, UNCOLORED, 0.85 * _TEXT, "right")
    else:
        canvas.write(top + _FOOT / 2, left, UNCOLORED, 0.85 * _TEXT)
        draw_color_bar(canvas, (top + _FOOT / 2, right - _GAP), quantity, 1)
    return canvas.drawn()


def mask_picture(
    regions: Sequence[Region], size_yx: tuple[int, int], slide_mpp: float, thumbnail_mpp: float
) -> Pixels:
    """Reference mask as a picture, (h, w, 3), uint8: white on black, in the thumbnail's size.

    Args:
        regions: in level-0 pixels; empty gives black.
        size_yx: height and width of the thumbnail, px.
        slide_mpp: µm per level-0 pixel.
        thumbnail_mpp: µm per pixel of the thumbnail.
    """
    mask = rasterize_regions(regions, downsample=thumbnail_mpp / slide_mpp, shape=size_yx)
    return np.repeat(mask[..., None], 3, axis=2).astype(np.uint8) * 255


def _fitted(picture: Pixels) -> Pixels:
    """Picture scaled to its cell."""
    height, width = picture.shape[:2]
    scale = _CELL_PX / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return np.asarray(
        cv2.resize(picture, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    )
