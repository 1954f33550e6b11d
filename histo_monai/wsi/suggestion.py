"""Selection of regions to label next: uncertain, and far from labeled regions and from each other.

* Uncertainty: entropy (Lewis & Gale 1994, "A sequential algorithm for training text classifiers"); for scores, the
  disagreement of two models (Seung et al. 1992, "Query by committee").
* Distance: greedy k-center, the point farthest from all centers (Gonzalez 1985), on network features (Sener & Savarese
  2018, "Active learning for convolutional neural networks: a core-set approach").
* Their product, as in Wu, Lin & Huang 2019, "Active learning for regression using greedy sampling".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from histo_monai.utils.errors import InputError
from histo_monai.utils.process.products import product

MIN_DISTANCE = 0.1
"""Minimum distance of two selected candidates; 1 is the root mean square distance of two candidates."""

_CHUNK = 4096
_TOUCHING = 1 - 1e-6


@dataclass(frozen=True)
class Fields:
    """Squares on slides.

    Attributes:
        slide_ids: (n,), texts; squares of different slides never overlap.
        centers_yx: (n, 2), level-0 pixels.
        sides_px: (n,), level-0 pixels.
    """

    slide_ids: NDArray[np.object_]
    centers_yx: NDArray[np.float64]
    sides_px: NDArray[np.float64]

    def overlapping(self, other: Fields, number: int) -> NDArray[np.bool_]:
        """Mask of the squares that overlap square `number` of `other`; touching squares do not overlap."""
        reach = (self.sides_px + other.sides_px[number]) / 2 * _TOUCHING
        apart = np.abs(self.centers_yx - other.centers_yx[number]).max(axis=1)
        return (self.slide_ids == other.slide_ids[number]) & (apart < reach)

    def apart_from(self, other: Fields) -> NDArray[np.bool_]:
        """Mask of the squares that overlap none of `other`."""
        is_apart = np.ones(len(self.sides_px), bool)
        for number in range(len(other.sides_px)):
            is_apart &= ~self.overlapping(other, number)
        return is_apart


def indecision(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    """Entropy of class probabilities, relative to its maximum: 0 (certain) to 1 (uniform), (n,).

    Entropy falls more slowly than the margin of the two most likely classes, which leaves more weight to the distance;
    on simulated features it gave slightly better labels.

    Args:
        probabilities: (n, K), K of at least 2, rows sum to 1.
    """
    rows = np.asarray(probabilities, np.float64)
    return np.clip(entr(rows).sum(axis=1) / np.log(rows.shape[1]), 0, 1)


def disagreement(scores: NDArray[np.floating], others: NDArray[np.floating]) -> NDArray[np.float64]:
    """Absolute difference of two models' scores, relative to its maximum, (n,), 0 to 1.

    Args:
        scores: (n,), of one model.
        others: (n,), of the other.
    """
    apart = np.abs(np.asarray(scores, np.float64) - others)
    return apart / max(apart.max(initial=0), np.finfo(np.float64).tiny)


def choose_diverse(
    features: NDArray[np.float32],
    uncertainty: NDArray[np.floating],
    num: int,
    *,
    labeled_features: NDArray[np.float32] | None = None,
    fields: Fields | None = None,
    labeled_fields: Fields | None = None,
    min_distance: float = MIN_DISTANCE,
    most_per_slide: int | None = None,
) -> NDArray[np.int64]:
    """Greedy selection of the candidate with the largest uncertainty × distance to the nearest labeled or selected one.

    The distance is Euclidean, in units of the root mean square distance of two candidates. Excluded: uncertainty 0,
    distance below `min_distance`, and overlap with a labeled or selected square. Without labels, the first is the most
    uncertain; ties select the first. Time grows with n × (num + m) × D; memory doubles that of the features.

    Args:
        features: (n, D), of the candidates.
        uncertainty: (n,), 0 or more.
        labeled_features: (m, D).
        fields: the n candidates' squares; None: no overlap check.
        labeled_fields: squares that candidates must not overlap, any number.
        most_per_slide: maximum per slide while other slides have candidates; None: no maximum.

    Returns:
        (k,), int64, in order of selection; k < num if no candidates remain.

    Raises:
        InputError: shapes differ, or a number is not finite or out of range.
    """
    _check(features, uncertainty, num, labeled_features, fields, min_distance)
    if not len(features):
        return np.zeros(0, np.int64)
    center, unit = _scale(features)
    points = (features - center) * unit
    squared = np.full(len(points), np.inf, np.float32)
    if labeled_features is not None and len(labeled_features):
        for start in range(0, len(labeled_features), _CHUNK):
            _come_nearer(squared, points, (labeled_features[start : start + _CHUNK] - center) * unit)
    is_open = np.asarray(uncertainty) > 0
    if fields is not None and labeled_fields is not None:
        is_open &= fields.apart_from(labeled_fields)
    chosen: list[int] = []
    is_full = np.zeros(len(points), bool)
    slides = None if fields is None else fields.slide_ids
    while len(chosen) < num:
        distance = np.sqrt(np.where(np.isinf(squared), 1, squared))
        worth = np.where(is_open & ~is_full & (distance >= min_distance), uncertainty * distance, 0)
        best = int(worth.argmax())
        if worth[best] <= 0 and is_full.any():
            is_full[:], most_per_slide = False, None
            continue
        if worth[best] <= 0:
            break
        chosen.append(best)
        is_open[best] = False
        is_full |= _of_a_full_slide(slides, chosen, most_per_slide)
        if fields is not None:
            is_open &= ~fields.overlapping(fields, best)
        _come_nearer(squared, points, points[best : best + 1])
    return np.array(chosen, np.int64)


def _of_a_full_slide(
    slides: NDArray[np.object_] | None, chosen: list[int], most: int | None
) -> NDArray[np.bool_] | bool:
    """Candidates on the slide of the last selected one, if it has reached the maximum."""
    if slides is None or most is None:
        return False
    same = slides == slides[chosen[-1]]
    return same & (int(same[chosen].sum()) >= most)


def _scale(features: NDArray[np.float32]) -> tuple[NDArray[np.float32], np.float32]:
    """Mean of the candidates, and 1 / root mean square distance of two candidates."""
    center = features.mean(axis=0, dtype=np.float64)
    chunks = range(0, len(features), _CHUNK)
    total = sum(float(((features[start : start + _CHUNK] - center) ** 2).sum()) for start in chunks)
    unit = (len(features) / (2 * total)) ** 0.5 if total else 1.0
    return center.astype(np.float32), np.float32(unit)


def _come_nearer(
    squared: NDArray[np.float32], points: NDArray[np.float32], others: NDArray[np.float32]
) -> None:
    """Update in place the squared distance of each point to the nearest of `others`."""
    lengths = (others**2).sum(axis=1)
    for start in range(0, len(points), _CHUNK):
        some = points[start : start + _CHUNK]
        nearest = (lengths - 2 * product(some, others.T)).min(axis=1) + (some**2).sum(axis=1)
        part = squared[start : start + _CHUNK]
        np.minimum(part, np.maximum(nearest, 0), out=part)


def _check(
    features: NDArray[np.float32],
    uncertainty: NDArray[np.floating],
    num: int,
    labeled_features: NDArray[np.float32] | None,
    fields: Fields | None,
    min_distance: float,
) -> None:
    if features.ndim != 2 or np.shape(uncertainty) != features.shape[:1]:
        raise InputError(
            f"features {features.shape}, uncertainty {np.shape(uncertainty)}. Fix: give (n, D) and (n,)"
        )
    if labeled_features is not None and labeled_features.shape[1:] != features.shape[1:]:
        raise InputError(
            f"labeled_features: shape {labeled_features.shape}, features {features.shape}. Fix: give equal D"
        )
    if fields is not None and len(fields.sides_px) != len(features):
        raise InputError(
            f"fields: {len(fields.sides_px)} for {len(features)} candidates. Fix: give one per candidate"
        )
    if not (np.isfinite(uncertainty).all() and (np.asarray(uncertainty) >= 0).all()):
        raise InputError("uncertainty: a value is negative or NaN. Fix: give 0 or more")
    if not np.isfinite(features).all():
        raise InputError("features: a value is not finite. Fix: give finite numbers")
    if num < 1 or min_distance < 0:
        raise InputError(f"num {num}, min_distance {min_distance}. Fix: give num >= 1 and min_distance >= 0")
