"""Overlay of a map on its slide, with title, scale bar, color bar and reference outlines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from histo_monai.reports.drawing import INK, drawn
from histo_monai.reports.maps.winners import blend_winners
from histo_monai.slides.annotations import Region, class_color
from histo_monai.utils.errors import InputError
from histo_monai.wsi.heatmaps.heatmap import Heatmap
from histo_monai.wsi.heatmaps.tiff_map import PALETTE, encode

Pixels = NDArray[np.uint8]

_DPI = 100
_FAINTEST, _STRONGEST, _FULL_FROM = 0.18, 0.62, 0.6
_OPACITY = np.interp(np.arange(256), [1, 1 + 254 * _FULL_FROM], [_FAINTEST, _STRONGEST])
_OPACITY[0] = 0  # unmapped cells are not colored
_LINE, _HALO = (0, 220, 60), (0, 0, 0)
UNCOLORED = "uncolored: no data"
_MARGIN, _TITLE, _FOOT, _TEXT = 14, 34, 62, 14  # px at a picture up to a thousand px wide.
_BAR_PX, _NARROWEST, _KEY_LINE = 170, 460, 22
_SUBPIXELS = 4  # OpenCV's fixed-point unit: 1/16 px


class Canvas:
    """White image for pictures and text; positions from the upper left, px.

    Attributes:
        size_yx: height and width.
    """

    def __init__(self, height: int, width: int) -> None:
        self.size_yx = (height, width)
        self._figure = Figure(
            figsize=((width + 0.01) / _DPI, (height + 0.01) / _DPI), dpi=_DPI, facecolor="white"
        )
        self._pictures: list[tuple[int, int, Pixels]] = []

    def lay(self, y: float, x: float, picture: Pixels) -> None:
        """Place a picture (h, w, 3) with its upper left corner at (y, x), unscaled."""
        self._pictures.append((round(y), round(x), picture))

    def write(
        self, y: float, x: float, words: str, px: float, across: str = "left", bold: bool = False
    ) -> None:
        """Write text centered on y, with its left, center or right at x; `px` is the type height."""
        height, width = self.size_yx
        self._figure.text(
            x / width,
            1 - y / height,
            words,
            fontsize=px * 72 / _DPI,
            color=INK,
            ha=across,
            va="center_baseline" if "\n" not in words else "center",
            weight="bold" if bold else "normal",
            parse_math=False,
        )

    def drawn(self) -> Pixels:
        """Pixels, (H, W, 3), uint8."""
        pixels = drawn(self._figure)
        for y, x, picture in self._pictures:
            pixels[y : y + picture.shape[0], x : x + picture.shape[1]] = picture
        return pixels


@dataclass(frozen=True)
class Layout:
    """Positions in an overlay.

    Attributes:
        canvas_yx: height and width of the image, px.
        corner_yx: upper left corner of the slide picture.
        scale: of text and lines; 1 up to a width of 1000 px.
    """

    canvas_yx: tuple[int, int]
    corner_yx: tuple[int, int]
    scale: float


def layout(picture_yx: tuple[int, int], title: str, classes: Sequence[str] = ()) -> Layout:
    """Layout of an overlay, with one line per class below if there are several."""
    height, width = picture_yx
    scale = min(max(width / 1000, 1), 3)
    margin = round(_MARGIN * scale)
    needed = max(_NARROWEST, width + 2 * margin, round(0.62 * len(title) * 1.15 * _TEXT * scale) + 2 * margin)
    top = round((_TITLE + _MARGIN / 2) * scale)
    foot = round(_FOOT * scale) + margin
    key = round(_KEY_LINE * scale) * len(classes) if len(classes) > 1 else 0
    return Layout((top + height + foot + key, needed), (top, (needed - width) // 2), scale)


def overlay(
    thumbnail: Pixels,
    thumbnail_mpp: float,
    heatmap: Heatmap,
    model: str,
    *,
    regions: Sequence[Region],
    title: str,
    quantity: str,
    classes: Sequence[str] = (),
) -> Pixels:
    """Slide with its map, (H, W, 3), uint8: reference outlines, scale bar, and color bar or class key.

    The slide picture is unscaled, at `layout(thumbnail.shape[:2], title).corner_yx`.

    Args:
        thumbnail: whole slide, (h, w, 3), uint8.
        thumbnail_mpp: µm per pixel, at most the side of a cell.
        heatmap: of the slide.
        model: column of the map.
        regions: reference; may be empty.
        title: one line above.
        quantity: such as "tumor probability"; not used with several classes.
        classes: mapped classes; of several, the most probable is shown.

    Raises:
        InputError: thumbnail and slide do not fit.
    """
    picture = blend(thumbnail, thumbnail_mpp, heatmap, model, regions=regions, classes=classes)
    plan = layout(picture.shape[:2], title, classes)
    canvas = Canvas(*plan.canvas_yx)
    (top, left), scale = plan.corner_yx, plan.scale
    height, width = picture.shape[:2]
    canvas.lay(top, left, picture)
    canvas.write(0.58 * top, plan.canvas_yx[1] / 2, title, 1.15 * _TEXT * scale, "center", bold=True)
    foot = top + height + _FOOT * scale / 2
    margin = _MARGIN * scale
    longest = min(0.2 * max(height, width), 0.3 * plan.canvas_yx[1])
    end = draw_scale_bar(canvas, (foot, margin), longest, thumbnail_mpp, scale)
    if regions:
        draw_line_key(canvas, (foot, end + 1.6 * margin), "reference", scale)
    if len(classes) > 1:
        draw_class_key(canvas, (foot + _FOOT * scale / 2, margin), classes, scale)
    else:
        draw_color_bar(canvas, (foot, plan.canvas_yx[1] - margin), quantity, scale)
    bottom, right = plan.canvas_yx
    uncolored = UNCOLORED if heatmap.answers is None else f"{UNCOLORED} or no class"
    canvas.write(bottom - 0.6 * margin, right - margin, uncolored, 0.85 * _TEXT * scale, "right")
    return canvas.drawn()


def blend(
    thumbnail: Pixels,
    thumbnail_mpp: float,
    heatmap: Heatmap,
    model: str,
    *,
    regions: Sequence[Region] = (),
    classes: Sequence[str] = (),
) -> Pixels:
    """Thumbnail colored by the cell at each pixel's center; low values are almost transparent.

    Args:
        thumbnail: whole slide, (h, w, 3), uint8.
        thumbnail_mpp: µm per pixel, at most the side of a cell.
        heatmap: of the slide.
        model: column of the map.
        regions: outlines, level-0 pixels.
        classes: mapped classes; of several, the most probable is shown.

    Raises:
        InputError: the thumbnail is not the whole slide at this resolution, or is coarser than the map.
    """
    grid = heatmap.grid
    _check(thumbnail, thumbnail_mpp, heatmap)
    if len(classes) > 1:
        picture = blend_winners(thumbnail, thumbnail_mpp, heatmap, model, classes)
        return outlined(picture, grid.slide_mpp / thumbnail_mpp, regions)
    rows, columns = (
        np.minimum(((np.arange(side) + 0.5) * thumbnail_mpp / grid.stride_um).astype(np.int64), num - 1)
        for side, num in zip(thumbnail.shape[:2], grid.shape, strict=True)
    )
    indices = encode(heatmap.raster(model))
    colors = PALETTE.astype(np.float32)
    opacity = _OPACITY.astype(np.float32)
    picture = np.empty_like(thumbnail)
    for number, row in enumerate(
        rows
    ):  # Line by line, so that nothing of float stands beside a large picture.
        index = indices[row, columns]
        alpha = opacity[index][:, None]
        picture[number] = np.rint(thumbnail[number] * (1 - alpha) + colors[index] * alpha)
    return outlined(picture, grid.slide_mpp / thumbnail_mpp, regions)


def outlined(picture: Pixels, scale: float, regions: Sequence[Region]) -> Pixels:
    """Copy of a picture, (h, w, 3), uint8, with outlines and holes as lines visible on light and dark.

    Args:
        scale: picture pixels per level-0 pixel.
        regions: in level-0 pixels.
    """
    picture = picture.copy()
    # OpenCV's integers are pixel centers; level-0 coordinates are pixel edges.
    lines = [
        np.rint((ring * scale - 0.5)[:, ::-1] * 2**_SUBPIXELS).astype(np.int32).reshape(-1, 1, 2)
        for region in regions
        for ring in (region.exterior_yx, *region.holes_yx)
    ]
    core = max(1, round(math.sqrt(picture.shape[0] * picture.shape[1]) / 450))
    for color, thickness in ((_HALO, core + 2), (_LINE, core)):
        cv2.polylines(picture, lines, True, color, thickness, cv2.LINE_AA, _SUBPIXELS)
    return picture


def draw_scale_bar(
    canvas: Canvas, middle_left_yx: tuple[float, float], longest_px: float, mpp: float, scale: float
) -> float:
    """Draw a bar of the longest round length that fits, labeled above; its right end, px."""
    y, x = middle_left_yx
    length_um = round_length(longest_px * mpp)
    length = max(1, round(length_um / mpp))
    thickness = max(2, round(4 * scale))
    bar = np.empty((thickness, length, 3), np.uint8)
    bar[:] = [int(INK[i : i + 2], 16) for i in (1, 3, 5)]
    canvas.lay(y + 0.2 * _TEXT * scale, x, bar)
    text = f"{length_um / 1000:g} mm" if length_um >= 1000 else f"{length_um:g} µm"
    canvas.write(y - 0.7 * _TEXT * scale, x, text, _TEXT * scale)
    return x + max(length, 0.62 * len(text) * _TEXT * scale)


def round_length(length_um: float) -> float:
    """Largest 1, 2 or 5 times a power of ten up to a length."""
    power = 10.0 ** math.floor(math.log10(length_um))
    return max(step * power for step in (1, 2, 5) if step * power <= length_um * (1 + 1e-9))


def draw_line_key(canvas: Canvas, middle_left_yx: tuple[float, float], words: str, scale: float) -> None:
    """Draw a line sample and its meaning."""
    y, x = middle_left_yx
    core, length = max(2, round(2 * scale)), round(30 * scale)
    piece = np.empty((core + 2, length, 3), np.uint8)
    piece[:] = _HALO
    piece[1:-1] = _LINE
    canvas.lay(y + 0.2 * _TEXT * scale, x, piece)
    canvas.write(y - 0.7 * _TEXT * scale, x, words, _TEXT * scale)


def draw_class_key(
    canvas: Canvas, first_yx: tuple[float, float], classes: Sequence[str], scale: float
) -> None:
    """Draw one line per class: colored square and name."""
    y, x = first_yx
    side = round(_TEXT * scale)
    for number, label in enumerate(classes):
        middle = y + (number + 0.5) * round(_KEY_LINE * scale) - 0.5 * _KEY_LINE * scale
        square = np.empty((side, side, 3), np.uint8)
        square[:] = class_color(label)
        canvas.lay(middle - side / 2, x, square)
        canvas.write(middle, x + 1.5 * side, label, _TEXT * scale)


def draw_color_bar(canvas: Canvas, middle_right_yx: tuple[float, float], quantity: str, scale: float) -> None:
    """Draw the color scale over white, 0 to 1, and its quantity."""
    y, right = middle_right_yx
    height, width = round(12 * scale), round(_BAR_PX * scale)
    index = np.rint(np.linspace(1, 255, width)).astype(np.int64)
    alpha = _OPACITY[index][:, None]
    bar = np.empty((height, width, 3), np.uint8)
    bar[:] = np.rint(255 * (1 - alpha) + PALETTE[index] * alpha)
    bar[[0, -1]] = bar[:, [0, -1]] = 118
    left, text = right - width, _TEXT * scale
    canvas.lay(y - height / 2, left, bar)
    canvas.write(y - 1.25 * text, left + width / 2, quantity, text, "center")
    for value, across in ((0, "left"), (0.5, "center"), (1, "right")):
        canvas.write(y + 1.15 * text, left + value * width, f"{value:g}", 0.85 * text, across)


def _check(thumbnail: Pixels, thumbnail_mpp: float, heatmap: Heatmap) -> None:
    grid = heatmap.grid
    if not 0 < thumbnail_mpp <= grid.stride_um:
        raise InputError(
            f"thumbnail_mpp: {thumbnail_mpp:g} is not in 0..{grid.stride_um:g} µm/px, the side of a cell. "
            f"Fix: take a finer thumbnail"
        )
    scale = grid.slide_mpp / thumbnail_mpp
    # Two pixels: pyramid level and thumbnail are each rounded up.
    expected = tuple(size * scale for size in grid.size_yx)
    if any(abs(side - size) > 2 for side, size in zip(thumbnail.shape[:2], expected, strict=True)):
        raise InputError(
            f"thumbnail: {thumbnail.shape[:2]} px at {thumbnail_mpp:g} µm/px does not fit a slide of "
            f"{grid.size_yx} px at {grid.slide_mpp:g} µm/px. Fix: give {tuple(math.ceil(s) for s in expected)}"
        )
