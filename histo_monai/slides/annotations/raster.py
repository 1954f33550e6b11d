"""Outlines and regions -> masks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.annotations.regions import Outline, Region

Rule = Literal["center", "whole", "touched"]


def rasterize(
    outlines: Iterable[Outline],
    holes: Iterable[Outline] = (),
    *,
    downsample: float,
    shape: tuple[int, int],
    corner_yx: tuple[int, int] = (0, 0),
    rule: Rule = "center",
) -> NDArray[np.bool_]:
    """The area inside any of the outlines and inside none of the holes.

    Only the window asked for is made, and only the part of it around an outline is worked on. Inside is where the
    outline winds around a point at all (non-zero winding, the rule of ASAP's conversion), so the overlap of an outline
    that crosses itself is inside. Vertices are not rounded.

    Args:
        outlines: Any number; where they overlap they count once.
        holes: Taken out of all outlines.
        downsample: Level-0 pixels per mask pixel, i.e. mask_mpp / slide_mpp.
        shape: Height and width of the window, mask pixels.
        corner_yx: Upper left corner of the window, mask pixels.
        rule: What makes a pixel True. "center": its middle is inside. "whole": no part of it is outside, so areas
            summed up over the mask are never too large. "touched": any part of it is inside, so that what is False is
            clean altogether.

    Returns:
        Shape `shape`, bool.

    Raises:
        ValueError: downsample is not positive or the window is empty.
    """
    _check_window(downsample, shape)
    inverse: dict[Rule, Rule] = {"center": "center", "whole": "touched", "touched": "whole"}
    mask = _union(outlines, downsample, shape, corner_yx, rule)
    return mask & ~_union(holes, downsample, shape, corner_yx, inverse[rule])


def rasterize_regions(
    regions: Iterable[Region],
    *,
    downsample: float,
    shape: tuple[int, int],
    corner_yx: tuple[int, int] = (0, 0),
    rule: Rule = "center",
) -> NDArray[np.bool_]:
    """The area inside any region; the holes of one are taken from that one only.

    So a region in the hole of another stays. Arguments, result and errors are those of `rasterize`.
    """
    _check_window(downsample, shape)
    mask = np.zeros(shape, bool)
    for region in regions:
        outlines = [Outline("", "", points) for points in (region.exterior_yx, *region.holes_yx)]
        low, high = _window(outlines[0].points_yx / downsample - corner_yx, shape)
        if (high <= low).any():
            continue
        mask[low[0] : high[0], low[1] : high[1]] |= rasterize(
            outlines[:1],
            outlines[1:],
            downsample=downsample,
            shape=(int(high[0] - low[0]), int(high[1] - low[1])),
            corner_yx=(int(corner_yx[0] + low[0]), int(corner_yx[1] + low[1])),
            rule=rule,
        )
    return mask


def _check_window(downsample: float, shape: tuple[int, int]) -> None:
    if not downsample > 0 or min(shape) < 1:
        raise ValueError(f"downsample and shape must be positive, got {downsample} and {shape}")


def _window(
    points: NDArray[np.float64], shape: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First pixel of the part of a window around an outline, and the one after its last."""
    low = np.clip(np.floor(points.min(axis=0)).astype(np.int64), 0, shape)
    return low, np.clip(np.floor(points.max(axis=0)).astype(np.int64) + 1, 0, shape)


def _union(
    outlines: Iterable[Outline],
    downsample: float,
    shape: tuple[int, int],
    corner_yx: tuple[int, int],
    rule: Rule,
) -> NDArray[np.bool_]:
    mask = np.zeros(shape, bool)
    for outline in outlines:
        points = outline.points_yx / downsample - corner_yx
        low, high = _window(points, shape)
        if (high <= low).any():
            continue
        window = mask[low[0] : high[0], low[1] : high[1]]
        starts = points - low
        ends = np.roll(starts, -1, axis=0)
        inside = _winds_around_centers(starts, ends, window.shape)
        if rule != "center":
            rows, columns = _crossed_pixels(starts, ends, window.shape)
            inside[rows, columns] = rule == "touched"
        window |= inside
    return mask


def _winds_around_centers(
    starts: NDArray[np.float64], ends: NDArray[np.float64], shape: Sequence[int]
) -> NDArray[np.bool_]:
    """Whether the polygon of these edges winds around the middle of each pixel; shape `shape`, bool."""
    height, width = shape
    # The rows whose middle an edge passes: the lower end belongs to it, the upper one to its neighbour.
    first, last = (
        np.clip(np.ceil(edge - 0.5), 0, height).astype(np.int64)
        for edge in (np.minimum(starts[:, 0], ends[:, 0]), np.maximum(starts[:, 0], ends[:, 0]))
    )
    edge, step = _spread(last - first)
    row = first[edge] + step
    rise, run = (ends - starts)[edge].T
    column = starts[edge, 1] + (row + 0.5 - starts[edge, 0]) / rise * run
    turns = np.zeros((height, width + 1), np.int32)
    # An edge counts for every pixel whose middle lies to its right.
    np.add.at(
        turns,
        (row, np.clip(np.ceil(column - 0.5), 0, width).astype(np.int64)),
        np.sign(rise).astype(np.int32),
    )
    np.cumsum(turns, axis=1, out=turns)
    return turns[:, :width] != 0


def _crossed_pixels(
    starts: NDArray[np.float64], ends: NDArray[np.float64], shape: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the pixels that an edge runs through, inside the window; some more than once."""
    delta = ends - starts
    edges, parts = [np.arange(len(starts))] * 2, [np.zeros(len(starts)), np.ones(len(starts))]
    for axis in (0, 1):  # Where an edge crosses from one row, or column, of pixels to the next.
        low = np.minimum(starts[:, axis], ends[:, axis])
        high = np.maximum(starts[:, axis], ends[:, axis])
        first, last = (np.clip(np.ceil(value), 0, shape[axis] + 1).astype(np.int64) for value in (low, high))
        edge, step = _spread(last - first)
        edges.append(edge)
        parts.append((first[edge] + step - starts[edge, axis]) / delta[edge, axis])
    edge, part = np.concatenate(edges), np.clip(np.concatenate(parts), 0, 1)
    order = np.lexsort((part, edge))
    edge, part = edge[order], part[order]
    same = edge[1:] == edge[:-1]
    middle = ((part[1:] + part[:-1]) / 2)[same]
    edge = edge[1:][same]
    pixel = np.floor(starts[edge] + middle[:, None] * delta[edge]).astype(np.int64)
    rows, columns = pixel[((pixel >= 0) & (pixel < np.array(shape))).all(axis=1)].T
    return rows, columns


def _spread(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each index as often as its count says, and which time it is: (2, 0, 1) -> (0, 0, 2), (0, 1, 0)."""
    index = np.repeat(np.arange(len(counts)), counts)
    return index, np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
