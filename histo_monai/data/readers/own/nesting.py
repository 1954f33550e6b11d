"""Removal of inner regions of one class from outer regions of another class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.annotations import Region, rasterize_each
from histo_monai.slides.annotations.boxes import BoxTree

Floats = NDArray[np.float64]

INSIDE = 0.9
"""A region is inner if at least this fraction of it lies in the other, and its area is at most this fraction of the
other's area. The second condition excludes two outlines of the same object."""
_SIDE_PX = 64
_PAIRS = 64


def without_inner(regions: Sequence[Region]) -> list[Region]:
    """Each region without the inner regions of other labels; holes of inner regions remain in the outer region.

    Args:
        regions: Regions with an area and a label.
    """
    if not regions:
        return []
    lows, highs = (
        np.array([getattr(region.exterior_yx, which)(axis=0) for region in regions])
        for which in ("min", "max")
    )
    number_of = {label: number for number, label in enumerate({region.label: 0 for region in regions})}
    codes = np.array([number_of[region.label] for region in regions], np.int64)
    areas = np.array([abs(_signed_area(region.exterior_yx)) for region in regions])
    near = BoxTree(lows, highs, codes).pairs(lows, highs, codes)
    holes: list[list[Floats]] = [list(region.holes_yx) for region in regions]
    while some := list(islice(near, _PAIRS)):
        inner, outer = np.array(some).T
        smaller = areas[inner] < INSIDE * areas[outer]
        inner, outer = inner[smaller], outer[smaller]
        parts = _parts_inside(
            [(regions[one], regions[other]) for one, other in zip(inner, outer, strict=True)]
        )
        for one, other in zip(inner[parts >= INSIDE].tolist(), outer[parts >= INSIDE].tolist(), strict=True):
            holes[other].append(_outline_around_holes(regions[one]))
    return [replace(region, holes_yx=tuple(some)) for region, some in zip(regions, holes, strict=True)]


def _parts_inside(pairs: Sequence[tuple[Region, Region]]) -> Floats:
    """Fraction of each first region's area inside the second, 0..1, on a 64 × 64 grid over the first's extent."""
    if not pairs:
        return np.empty(0)
    scaled: list[list[Region]] = [[], []]
    for pair in pairs:
        low, high = pair[0].exterior_yx.min(axis=0), pair[0].exterior_yx.max(axis=0)
        for some, region in zip(scaled, pair, strict=True):
            exterior, *holes = (
                (points - low) / (high - low) * _SIDE_PX for points in (region.exterior_yx, *region.holes_yx)
            )
            some.append(Region(exterior, tuple(holes)))
    one, other = (
        rasterize_each(some, downsample=1, shape=(_SIDE_PX, _SIDE_PX), corners_yx=np.zeros((len(some), 2)))
        for some in scaled
    )
    places, both = one.sum(axis=(1, 2)), (one & other).sum(axis=(1, 2))
    return np.asarray(both / np.maximum(places, 1))


def _signed_area(points_yx: Floats) -> float:
    y, x = (points_yx - points_yx[0]).T
    return float((y * np.roll(x, -1) - x * np.roll(y, -1)).sum()) / 2


def _outline_around_holes(region: Region) -> Floats:
    """One closed polygon that winds around a region's interior and not around its holes.

    It runs from the exterior's first point to each hole, around the hole in the other direction, and back.
    """
    exterior = region.exterior_yx
    start, turn = exterior[:1], np.sign(_signed_area(exterior))
    line = [exterior]
    for hole in region.holes_yx:
        around = hole[::-1] if np.sign(_signed_area(hole)) == turn else hole
        line += [start, around, around[:1]]
    return np.concatenate([*line, start]) if region.holes_yx else exterior
