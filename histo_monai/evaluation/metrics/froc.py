"""Free-response ROC of lesions as in Camelyon16: sensitivity against false positives per slide."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histo_monai.evaluation.metrics.bootstrap import Replicates, Resampling
from histo_monai.evaluation.metrics.estimate import Estimate
from histo_monai.utils.process.products import product
from histo_monai.utils.process.quiet import quiet_library

FALSE_POSITIVES_PER_SLIDE = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""False positives per slide of the six sensitivities; the score is their mean."""


@dataclass(frozen=True)
class SlideDetections:
    """Detections on one slide.

    Attributes:
        false_positives: Shape (n,), scores of the detections outside of all lesions, above 0.
        lesions: Shape (m,), highest score of a detection in each lesion, 0 for missed lesions.
    """

    false_positives: ArrayLike
    lesions: ArrayLike


@dataclass(frozen=True)
class Froc:
    """Free-response ROC curve of several slides, with its score.

    Attributes:
        fps_per_slide: Shape (T,), false positives per slide, from 0 upwards as the threshold falls.
        sensitivity: Shape (T,), fraction of detected lesions, at these thresholds; NaN without lesions.
        sensitivities: the sensitivity at each of `FALSE_POSITIVES_PER_SLIDE`.
        score: mean of `sensitivities`.
        num_lesions: of all slides.
        num_slides: with and without lesions.
    """

    fps_per_slide: NDArray[np.float64]
    sensitivity: NDArray[np.float64]
    sensitivities: Mapping[float, Estimate]
    score: Estimate
    num_lesions: int
    num_slides: int


def froc(
    slides: Sequence[SlideDetections],
    *,
    groups: ArrayLike | None = None,
    seed: int,
    num_replicates: int = 2000,
) -> Froc:
    """Free-response ROC curve by MONAI's version of the challenge's evaluation (Ehteshami Bejnordi et al. 2017).

    Every score is a threshold. Sensitivity is interpolated between thresholds, and constant beyond the end of the
    curve. The challenge leaves out the lowest score, usually the 0 of a missed lesion; here it always leaves out a 0,
    so that all detections count where no lesion is missed. The intervals resample slides, or patients. Without a lesion
    every sensitivity is NaN.

    Args:
        slides: all examined slides; the caller leaves out slides with incomplete outlines.
        groups: patient of each slide; None: each slide is a group.

    Raises:
        ValueError: there is no slide, a false positive's score is not above 0, a lesion's is below 0, or a score is not
            finite; or `groups` has another length.
    """
    resampling = Resampling(len(slides), groups, seed=seed, num_replicates=num_replicates)
    events = _events(slides)
    fps, sensitivity = _curve(events)
    replicates = _replicates(events, resampling)
    at = [resampling.estimate(*pair) for pair in zip(_read_off(fps, sensitivity), replicates.T, strict=True)]
    return Froc(
        fps,
        sensitivity,
        dict(zip(FALSE_POSITIVES_PER_SLIDE, at, strict=True)),
        resampling.estimate(_score(fps, sensitivity), replicates.mean(axis=1)),
        int(events.num_lesions.sum()),
        len(slides),
    )


def froc_replicates(slides: Sequence[SlideDetections], resampling: Resampling) -> Replicates:
    """FROC score on all slides and on every replicate; replicates are paired between models of one resampling.

    Args:
        resampling: of these slides.

    Returns:
        {"froc": (score, replicates)}; NaN for replicates without a lesion.

    Raises:
        ValueError: as `froc`, or the number of slides differs from the resampling's rows.
    """
    if len(slides) != resampling.num_rows:
        raise ValueError(f"{len(slides)} slides for a resampling of {resampling.num_rows} rows")
    events = _events(slides)
    return {"froc": (_score(*_curve(events)), _replicates(events, resampling).mean(axis=1))}


@dataclass(frozen=True)
class _Events:
    """Detections of all slides, highest score first, without missed lesions."""

    score: NDArray[np.float64]
    is_lesion: NDArray[np.bool_]
    slide: NDArray[np.int64]
    num_lesions: NDArray[np.int64]  # of each slide


def _events(slides: Sequence[SlideDetections]) -> _Events:
    false = [_scores(number, "false positive", one.false_positives) for number, one in enumerate(slides)]
    best = [_scores(number, "lesion", one.lesions) for number, one in enumerate(slides)]
    for number, scores in enumerate(false):
        if (scores == 0).any():
            raise ValueError(
                f"slide {number}: a false positive has score 0; expected above 0, as a detection has"
            )
    hit = [scores[scores > 0] for scores in best]
    score = np.concatenate(false + hit)
    slide = np.repeat(np.tile(np.arange(len(slides)), 2), [len(scores) for scores in false + hit])
    order = np.argsort(-score, kind="stable")
    is_lesion = np.arange(len(score)) >= sum(map(len, false))
    return _Events(score[order], is_lesion[order], slide[order], np.array([len(scores) for scores in best]))


def _scores(number: int, what: str, given: ArrayLike) -> NDArray[np.float64]:
    scores = np.asarray(given, np.float64)
    if scores.ndim != 1 or not np.isfinite(scores).all() or (scores < 0).any():
        raise ValueError(
            f"slide {number}: {what} scores are {scores.tolist()}; expected a list of numbers from 0"
        )
    return scores


def _curve(events: _Events) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """False positives per slide and sensitivity, from the highest threshold to the lowest."""
    num_lesions, num_slides = int(events.num_lesions.sum()), len(events.num_lesions)
    missed = np.zeros(1)  # MONAI leaves out the lowest score.
    fps, sensitivity = _monai().compute_froc_curve_data(
        events.score[~events.is_lesion],
        np.concatenate([missed, events.score[events.is_lesion]]),
        max(num_lesions, 1),
        num_slides,
    )
    return fps[::-1], sensitivity[::-1] if num_lesions else np.full(len(fps), np.nan)


def _read_off(fps: NDArray[np.float64], sensitivity: NDArray[np.float64]) -> list[float]:
    return [_score(fps, sensitivity, (target,)) for target in FALSE_POSITIVES_PER_SLIDE]


def _score(
    fps: NDArray[np.float64],
    sensitivity: NDArray[np.float64],
    targets: tuple[float, ...] = FALSE_POSITIVES_PER_SLIDE,
) -> float:
    return float(_monai().compute_froc_score(fps[::-1], sensitivity[::-1], targets))


def _replicates(events: _Events, resampling: Resampling) -> NDArray[np.float64]:
    """Sensitivities at the six points, shape (B, 6): sums over weighted detections, for all thresholds at once."""
    last = np.flatnonzero(np.diff(events.score, append=-1.0))  # Of detections with one score.
    read_off = []
    for counts in resampling.blocks():
        weights = resampling.weights(counts)
        of_event = weights[events.slide]
        false, hit = (
            np.cumsum(of_event * kind[:, None], axis=0)[last]
            for kind in (~events.is_lesion, events.is_lesion)
        )
        start = np.zeros((1, weights.shape[1]))
        fps = np.concatenate([start, false]) / weights.sum(axis=0)
        num_lesions = product(events.num_lesions, weights)
        sensitivity = np.concatenate([start, hit]) / np.where(num_lesions, num_lesions, np.nan)
        read_off += [
            np.interp(FALSE_POSITIVES_PER_SLIDE, *curve) for curve in zip(fps.T, sensitivity.T, strict=True)
        ]
    return np.array(read_off)


def _monai() -> ModuleType:
    """MONAI's FROC module, imported on use: the import takes seconds."""
    with quiet_library():  # MONAI loads nvImageCodec, which prints warnings where there is no GPU.
        return importlib.import_module("monai.metrics.froc")
