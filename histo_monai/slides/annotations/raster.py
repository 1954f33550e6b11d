"""Outlines and regions -> masks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.annotations.regions import Outline, Region

Rule = Literal["center", "whole", "touched"]

_INVERSE: dict[Rule, Rule] = {"center": "center", "whole": "touched", "touched": "whole"}
_MOST_PX = 2**22
"""Most window pixels, or crossings of edges with rows or columns, in one batch."""


def rasterize(
    outlines: Iterable[Outline],
    holes: Iterable[Outline] = (),
    *,
    downsample: float,
    shape: tuple[int, int],
    corner_yx: tuple[int, int] = (0, 0),
    rule: Rule = "center",
) -> NDArray[np.bool_]:
    """Mask of the area inside any outline and outside all holes.

    A point is inside if an outline winds around it (non-zero winding, as in ASAP's conversion), so the overlap of an
    outline that crosses itself is inside. Vertices are not rounded.

    Args:
        holes: Subtracted from all outlines.
        downsample: Level-0 pixels per mask pixel, i.e. mask_mpp / slide_mpp.
        shape: Height and width of the window, mask pixels.
        corner_yx: Upper left corner of the window, mask pixels.
        rule: A pixel is True if "center": its middle is inside; "whole": all of it is inside, so the mask's area is
            never too large; "touched": any part of it is inside, so False pixels hold nothing of the area.

    Returns:
        Shape `shape`, bool.

    Raises:
        ValueError: downsample is not positive or the window is empty.
    """
    _check_window(downsample, shape)
    mask = _union(outlines, downsample, shape, corner_yx, rule)
    return mask & ~_union(holes, downsample, shape, corner_yx, _INVERSE[rule])


def rasterize_regions(
    regions: Iterable[Region],
    *,
    downsample: float,
    shape: tuple[int, int],
    corner_yx: tuple[int, int] = (0, 0),
    rule: Rule = "center",
) -> NDArray[np.bool_]:
    """Mask of the area inside any region; a hole is subtracted from its own region only.

    A region in the hole of another region stays. Arguments, result and errors are those of `rasterize`.
    """
    _check_window(downsample, shape)
    mask = np.zeros(shape, bool)
    pieces = []
    for region in regions:
        outlines = [points / downsample - corner_yx for points in (region.exterior_yx, *region.holes_yx)]
        pieces.append(_pieces(outlines, np.zeros(2, np.int64), np.array(shape), rule))
    for low, inside in _without_holes(pieces):
        mask[low[0] : low[0] + inside.shape[0], low[1] : low[1] + inside.shape[1]] |= inside
    return mask


def rasterize_each(
    regions: Sequence[Region],
    *,
    downsample: float,
    shape: tuple[int, int],
    corners_yx: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """One mask per region, each in its own window, by the rule "center".

    Args:
        regions: n regions.
        downsample: Level-0 pixels per mask pixel.
        shape: Height and width of every window, mask pixels.
        corners_yx: Upper left corners of the windows, level-0 pixels, shape (n, 2).

    Returns:
        Shape (n, *shape), bool.
    """
    _check_window(downsample, shape)
    masks = np.zeros((len(regions), *shape), bool)
    pieces = []
    for region, corner in zip(regions, corners_yx, strict=True):
        outlines = [(points - corner) / downsample for points in (region.exterior_yx, *region.holes_yx)]
        pieces.append(_pieces(outlines, np.zeros(2, np.int64), np.array(shape), "center"))
    numbers = [number for number, some in enumerate(pieces) if some]
    for number, (low, inside) in zip(numbers, _without_holes(pieces), strict=True):
        masks[number, low[0] : low[0] + inside.shape[0], low[1] : low[1] + inside.shape[1]] = inside
    return masks


def _check_window(downsample: float, shape: tuple[int, int]) -> None:
    if not downsample > 0 or min(shape) < 1:
        raise ValueError(f"downsample and shape must be positive, got {downsample} and {shape}")


class _Piece(NamedTuple):
    """An outline in mask pixels, and its window in the mask: from `low`, of `size` pixels, not empty."""

    points: NDArray[np.float64]
    low: NDArray[np.int64]
    size: NDArray[np.int64]
    rule: Rule


def _pieces(
    outlines: Sequence[NDArray[np.float64]], first: NDArray[np.int64], end: NDArray[np.int64], rule: Rule
) -> list[_Piece]:
    """Pieces of an outline and its holes within a window; empty if the outline lies outside."""
    pieces: list[_Piece] = []
    for points in outlines:
        low = np.clip(np.floor(points.min(axis=0)).astype(np.int64), first, end)
        size = np.clip(np.floor(points.max(axis=0)).astype(np.int64) + 1, first, end) - low
        if size.all():
            pieces.append(_Piece(points, low, size, _INVERSE[rule] if pieces else rule))
            if len(pieces) == 1:
                first, end = low, low + size
        elif not pieces:
            break
    return pieces


def _without_holes(
    regions: Sequence[Sequence[_Piece]],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Upper left corner and mask of every region that has a piece, without its holes."""
    filled = _filled([piece for pieces in regions for piece in pieces])
    for pieces in regions:
        if not pieces:
            continue
        low, inside = pieces[0].low, next(filled).copy()
        for piece in pieces[1:]:
            y, x = piece.low - low
            inside[y : y + piece.size[0], x : x + piece.size[1]] &= ~next(filled)
        yield low, inside


def _union(
    outlines: Iterable[Outline],
    downsample: float,
    shape: tuple[int, int],
    corner_yx: tuple[int, int],
    rule: Rule,
) -> NDArray[np.bool_]:
    mask = np.zeros(shape, bool)
    whole = np.zeros(2, np.int64), np.array(shape)
    pieces = [
        piece
        for outline in outlines
        for piece in _pieces([outline.points_yx / downsample - corner_yx], *whole, rule)
    ]
    for piece, inside in zip(pieces, _filled(pieces), strict=True):
        y, x = piece.low
        mask[y : y + piece.size[0], x : x + piece.size[1]] |= inside
    return mask


def _filled(pieces: Sequence[_Piece]) -> Iterator[NDArray[np.bool_]]:
    """Mask of each piece, shape `size`, bool; filling many small pieces together takes a tenth of the time."""
    start = 0
    while start < len(pieces):
        end, num_px = start, 0
        while end < len(pieces) and (end == start or num_px < _MOST_PX):
            num_px += int(pieces[end].size.prod())
            end += 1
        yield from _filled_together(pieces[start:end])
        start = end


class _Edges(NamedTuple):
    """Edges of some pieces, pixels of their piece's window.

    Attributes:
        starts: Shape (n, 2), (y, x).
        ends: Shape (n, 2), (y, x).
        size: Height and width of the windows, shape (n, 2).
        at: Offset of each window in one flat array of all windows, each one column wider, shape (n,).
    """

    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    size: NDArray[np.int64]
    at: NDArray[np.int64]


def _filled_together(pieces: Sequence[_Piece]) -> Iterator[NDArray[np.bool_]]:
    sizes = np.array([piece.size for piece in pieces])
    areas = sizes[:, 0] * (sizes[:, 1] + 1)
    starts_at = np.cumsum(areas) - areas
    nums = np.array([len(piece.points) for piece in pieces])
    piece = np.repeat(np.arange(len(pieces)), nums)
    starts = np.concatenate([one.points for one in pieces]) - np.array([one.low for one in pieces])[piece]
    following = np.arange(1, len(piece) + 1)
    following[np.cumsum(nums) - 1] = np.cumsum(nums) - nums  # The last point is joined to the first.
    edges = _Edges(starts, starts[following], sizes[piece], starts_at[piece])
    turns = np.zeros(int(areas.sum()), np.int32)
    # An edge counts for every pixel whose middle lies to its right; over a whole row the counts add up to zero.
    for at, turn in _turns(edges):
        np.add.at(turns, at, turn)
    inside = np.cumsum(turns, out=turns) != 0
    crossed = np.array([one.rule != "center" for one in pieces])[piece]
    if crossed.any():
        touched = np.array([one.rule == "touched" for one in pieces])[piece]
        for of_rule, value in ((crossed & touched, True), (crossed & ~touched, False)):
            for at in _crossed_pixels(_Edges(*(column[of_rule] for column in edges))):
                inside[at] = value
    for (height, width), at, area in zip(sizes.tolist(), starts_at.tolist(), areas.tolist(), strict=True):
        yield inside[at : at + area].reshape(height, width + 1)[:, :width]


def _turns(edges: _Edges) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """Flat positions where the winding number of a row changes, and the change, in batches."""
    # Rows whose middle an edge passes: the lower end belongs to this edge, the upper one to its neighbor.
    tops, bottoms = (
        np.minimum(edges.starts[:, 0], edges.ends[:, 0]),
        np.maximum(edges.starts[:, 0], edges.ends[:, 0]),
    )
    first, last = (np.clip(np.ceil(y - 0.5), 0, edges.size[:, 0]).astype(np.int64) for y in (tops, bottoms))
    for edge, step in _spread(last - first):
        row = first[edge] + step
        starts, width = edges.starts[edge], edges.size[edge, 1]
        rise, run = (edges.ends[edge] - starts).T
        column = starts[:, 1] + (row + 0.5 - starts[:, 0]) / rise * run
        column = np.clip(np.ceil(column - 0.5), 0, width).astype(np.int64)
        yield edges.at[edge] + row * (width + 1) + column, np.sign(rise).astype(np.int32)


def _crossed_pixels(edges: _Edges) -> Iterator[NDArray[np.int64]]:
    """Flat positions of the pixels that an edge runs through, inside the windows, with repeats, in batches."""
    bounds = []
    for axis in (0, 1):  # Where an edge crosses into the next row, or column, of pixels.
        low = np.minimum(edges.starts[:, axis], edges.ends[:, axis])
        high = np.maximum(edges.starts[:, axis], edges.ends[:, axis])
        bounds.append(
            [np.clip(np.ceil(value), 0, edges.size[:, axis] + 1).astype(np.int64) for value in (low, high)]
        )
    (first_y, last_y), (first_x, last_x) = bounds
    num_rows = last_y - first_y
    for edge, step in _spread(2 + num_rows + last_x - first_x):
        starts, delta = edges.starts[edge], (edges.ends - edges.starts)[edge]
        rows = num_rows[edge]
        in_rows = (step >= 2) & (step < 2 + rows)
        in_columns = step >= 2 + rows
        part = np.minimum(step, 1).astype(np.float64)  # The edge's two ends come first.
        line = np.where(in_rows, first_y[edge] + step - 2, first_x[edge] + step - 2 - rows)
        for axis, crossing in ((0, in_rows), (1, in_columns)):
            part[crossing] = (line[crossing] - starts[crossing, axis]) / delta[crossing, axis]
        part = np.clip(part, 0, 1)
        order = np.lexsort((part, edge))
        edge, part = edge[order], part[order]
        same = edge[1:] == edge[:-1]
        middle = ((part[1:] + part[:-1]) / 2)[same]
        edge = edge[1:][same]
        pixel = np.floor(edges.starts[edge] + middle[:, None] * (edges.ends - edges.starts)[edge]).astype(
            np.int64
        )
        is_inside = ((pixel >= 0) & (pixel < edges.size[edge])).all(axis=1)
        pixel, edge = pixel[is_inside], edge[is_inside]
        yield edges.at[edge] + pixel[:, 0] * (edges.size[edge, 1] + 1) + pixel[:, 1]


def _spread(counts: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Each index repeated by its count, and the repeat's number: (2, 0, 1) -> (0, 0, 2), (0, 1, 0); in batches.

    One batch holds all repeats of an index.
    """
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        done = int(ends[start] - counts[start])
        end = max(start + 1, int(np.searchsorted(ends, done + _MOST_PX, side="right")))
        part = counts[start:end]
        index = np.repeat(np.arange(start, end), part)
        yield index, np.arange(len(index)) - np.repeat(ends[start:end] - part - done, part)
        start = end
