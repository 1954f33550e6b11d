"""Test outlines for area and report the parts of an annotation file that a reader skips."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.annotations.content import short

_LOG = logging.getLogger(__name__)

_NARROW_PX = 1e-6
"""Largest mean width of an outline without area, level-0 pixels: wider than rounding, narrower than ink."""

MOST_PX = 1e9
"""Largest valid coordinate, pixels. Larger ones are slips, and values like 1e300 overflow."""


@dataclass(frozen=True)
class LeftOut:
    """Parts of an annotation file that a reader skipped for one reason.

    Attributes:
        kind: "annotation", "outline", "shape", "feature" or "file".
        why: The reason, such as "without area".
        names: Name or place of each skipped part in the file.
    """

    path: Path
    kind: str
    why: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        """One line with the file, the number and the names."""
        return f"{self.path}: {_counted(len(self.names), self)} left out: {_listed(self.names)}"


def log_left_out(left_out: LeftOut) -> None:
    """Log skipped parts as a warning."""
    _LOG.warning("%s", left_out)


Report = Callable[[LeftOut], None]
"""Callback for skipped parts: `log_left_out`, or the `append` of a list."""


def left_out_in_words(left_out: Sequence[LeftOut]) -> list[str]:
    """One line for each reason, with the number of skipped parts and the files."""
    lines = []
    for kind, why in dict.fromkeys((one.kind, one.why) for one in left_out):
        some = [one for one in left_out if (one.kind, one.why) == (kind, why)]
        if len(some) == 1:
            lines.append(str(some[0]))
            continue
        num = sum(len(one.names) for one in some)
        files = [f"{len(one.names)} in {one.path.name} ({_listed(one.names, 2)})" for one in some]
        lines.append(f"{some[0].path.parent}: {_counted(num, some[0])} left out: {'; '.join(files)}")
    return lines


def _counted(num: int, one: LeftOut) -> str:
    return f"{num} {one.kind}{'s' * (num != 1)} {one.why}"


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(short, names[:most])) + more


def enclose_area(outlines: Sequence[NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Mask of the outlines that enclose an area.

    Fewer than three distinct points, or points along one line, enclose nothing. An outline that crosses itself
    encloses area: a bow tie has no signed area but two triangles.

    Args:
        outlines: Vertices, shape (n, 2), level-0 pixels.

    Returns:
        Shape (number of outlines,), bool.
    """
    nums = np.array([len(points) for points in outlines], np.int64)
    has_area = np.zeros(len(nums), bool)
    some = np.flatnonzero(nums >= 3)
    if not len(some):
        return has_area
    nums = nums[some]
    firsts = np.cumsum(nums) - nums
    points = np.concatenate([outlines[number] for number in some.tolist()])
    points = points - np.repeat(points[firsts], nums, axis=0)
    following = np.arange(1, len(points) + 1)
    following[firsts + nums - 1] = firsts
    ends = points[following]
    twice_area = np.add.reduceat(points[:, 1] * ends[:, 0] - points[:, 0] * ends[:, 1], firsts)
    length = np.add.reduceat(np.hypot(*(ends - points).T), firsts)
    wide = np.abs(twice_area) > 2 * _NARROW_PX * length
    has_area[some] = wide
    for number in some[~wide].tolist():
        has_area[number] = _is_wide(outlines[number].tolist())
    return has_area


def _is_wide(points: Sequence[Sequence[float]]) -> bool:
    """Whether three points remain after removing every point on a line with its two neighbors."""
    left: list[Sequence[float]] = []
    for point in points:
        left.append(point)
        while len(left) >= 3 and _on_a_line(*left[-3:]):
            del left[-2]
    while len(left) >= 3:
        if _on_a_line(left[-2], left[-1], left[0]):
            left.pop()
        elif _on_a_line(left[-1], left[0], left[1]):
            left.pop(0)
        else:
            return True
    return False


def _on_a_line(one: Sequence[float], middle: Sequence[float], other: Sequence[float]) -> bool:
    before_y, before_x = middle[0] - one[0], middle[1] - one[1]
    after_y, after_x = other[0] - middle[0], other[1] - middle[1]
    lengths = np.hypot(before_y, before_x) + np.hypot(after_y, after_x)
    return bool(abs(before_y * after_x - before_x * after_y) <= _NARROW_PX * lengths)
