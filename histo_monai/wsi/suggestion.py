"""What to label next: where the model is unsure, far from what is labeled and from each other.

* Unsure: uncertainty sampling (Lewis & Gale 1994, "A sequential algorithm for training text classifiers"), by entropy;
  for scores, two models that disagree (Seung et al. 1992, "Query by committee").
* Far: the greedy k-center, which takes the point farthest from all centers (Gonzalez 1985), in the features of a
  trained network (Sener & Savarese 2018, "Active learning for convolutional neural networks: a core-set approach").
* Both: their product, as in the greedy sampling of Wu, Lin & Huang 2019, "Active learning for regression using greedy
  sampling". A candidate that lacks one of the two is not chosen for the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from histo_monai.utils.errors import InputError
from histo_monai.utils.process.products import product

MIN_DISTANCE = 0.1
"""Nearer than this two candidates are near-duplicates; 1 is the root mean square distance of two candidates."""

_CHUNK = 4096
_TOUCHING = 1 - 1e-6


@dataclass(frozen=True)
class Fields:
    """Squares of slides.

    Attributes:
        slide_ids: Shape (n,), texts; fields of different slides never overlap.
        centers_yx: Shape (n, 2), level-0 pixels.
        sides_px: Shape (n,), level-0 pixels.
    """

    slide_ids: NDArray[np.object_]
    centers_yx: NDArray[np.float64]
    sides_px: NDArray[np.float64]

    def overlapping(self, other: Fields, number: int) -> NDArray[np.bool_]:
        """Which of these fields share an area with field `number` of `other`; touching is not sharing."""
        reach = (self.sides_px + other.sides_px[number]) / 2 * _TOUCHING
        apart = np.abs(self.centers_yx - other.centers_yx[number]).max(axis=1)
        return (self.slide_ids == other.slide_ids[number]) & (apart < reach)


def indecision(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    """How undecided a classifier is: the entropy of its probabilities, as part of the largest there can be.

    Not the margin of the likeliest class over the next: falling off faster, it leaves less of a choice to the distance,
    and on simulated features (docs/annotate_next.md) it taught a little less.

    Args:
        probabilities: Shape (n, K), K of at least 2, rows that sum to 1.

    Returns:
        Shape (n,), 0 (certain) to 1 (all classes are equally likely).
    """
    shares = np.asarray(probabilities, np.float64)
    return np.clip(entr(shares).sum(axis=1) / np.log(shares.shape[1]), 0, 1)


def disagreement(scores: NDArray[np.floating], others: NDArray[np.floating]) -> NDArray[np.float64]:
    """How far two models are apart on a score, as part of the largest such difference.

    Args:
        scores: Shape (n,), of one model.
        others: Shape (n,), of the other.

    Returns:
        Shape (n,), 0 to 1; the scale changes no choice, since `choose_diverse` multiplies.
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
    """Take, one by one, the candidate of the largest uncertainty × distance to the nearest one labeled or chosen.

    The distance is Euclidean, in units of the root mean square distance of two candidates, so that the scale of the
    features does not matter. Never taken: what is certain (uncertainty 0), what is nearer than `min_distance` to one
    labeled or chosen, and what shares an area of a slide with one. As long as nothing is labeled or chosen, uncertainty
    decides; among equals the first. Time grows with n × (num + m) × D; beside the features, as much memory again.

    Args:
        features: Shape (n, D), of the candidates.
        uncertainty: Shape (n,), 0 or more.
        labeled_features: Shape (m, D), of what is labeled.
        fields: Where the candidates lie, n of them; None: nothing overlaps.
        labeled_fields: What else may not be overlapped, any number.
        most_per_slide: Of the fields of one slide, as long as another slide has any left; None: as it comes.

    Returns:
        Shape (k,), int64, in the order of choice; k < num where no more are left.

    Raises:
        InputError: shapes differ, or a number is not finite or out of its range.
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
        for number in range(len(labeled_fields.sides_px)):
            is_open &= ~fields.overlapping(labeled_fields, number)
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
    """The fields of the slide of the last one chosen, where it has given as many as it may."""
    if slides is None or most is None:
        return False
    same = slides == slides[chosen[-1]]
    return same & (int(same[chosen].sum()) >= most)


def _scale(features: NDArray[np.float32]) -> tuple[NDArray[np.float32], np.float32]:
    """The middle of the candidates, and one over the root mean square distance of two of them."""
    center = features.mean(axis=0, dtype=np.float64)
    chunks = range(0, len(features), _CHUNK)
    total = sum(float(((features[start : start + _CHUNK] - center) ** 2).sum()) for start in chunks)
    unit = (len(features) / (2 * total)) ** 0.5 if total else 1.0
    return center.astype(np.float32), np.float32(unit)


def _come_nearer(
    squared: NDArray[np.float32], points: NDArray[np.float32], others: NDArray[np.float32]
) -> None:
    """Lower the squared distance of each point to that of the nearest of `others`, in place."""
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
            f"expected features (n, D) and uncertainty (n,), got {features.shape} and {np.shape(uncertainty)}"
        )
    if labeled_features is not None and labeled_features.shape[1:] != features.shape[1:]:
        raise InputError(f"labeled features {labeled_features.shape} do not fit those {features.shape}")
    if fields is not None and len(fields.sides_px) != len(features):
        raise InputError(f"{len(fields.sides_px)} fields for {len(features)} candidates; expected one each")
    if not (np.isfinite(uncertainty).all() and (np.asarray(uncertainty) >= 0).all()):
        raise InputError("an uncertainty is negative or not a number; expected 0 or more")
    if not np.isfinite(features).all():
        raise InputError("a feature is not a finite number")
    if num < 1 or min_distance < 0:
        raise InputError(f"num must be at least 1 and min_distance at least 0, got {num} and {min_distance}")
