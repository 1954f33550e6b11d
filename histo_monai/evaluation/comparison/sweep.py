"""Points of learning curves, and labels saved, from the predictions of many experiments."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.evaluation.comparison.learning_curve import (
    LearningCurve,
    fitted_law,
    labels_needed,
    labels_saved,
)
from histo_monai.evaluation.comparison.models import estimate_over_seeds
from histo_monai.evaluation.comparison.paired import by_encoder
from histo_monai.evaluation.comparison.replicates import metric_replicates
from histo_monai.evaluation.metrics import Estimate, Resampling
from histo_monai.utils.randomness import generator

HEADLINES = ("accuracy", "weighted_f1", "macro_auc", "icc", "icc_a", "icc_b")
"""Metrics of the charts; larger is better, at most 1."""
BASELINE = ("random", "finetune")
"""Method and stage of supervised learning, the baseline of saved labels."""


@dataclass(frozen=True)
class Member:
    """One model of one experiment, on test patches common to its family.

    Attributes:
        method: pretraining method.
        training: "finetune", or a semi-supervised method.
        repeat: pretraining seed and training seed.
        alpha: fraction of the labels.
        num_labels: number of the labels.
        mu: unlabeled images per labeled image; NaN for fine-tuning.
        n_aug: operations of the strong view; NaN for fine-tuning.
        predictions: Shape (N, K), probabilities, or (N,), scores.
    """

    method: str
    training: str
    repeat: tuple[int, int]
    alpha: float
    num_labels: int
    mu: float
    n_aug: float
    predictions: NDArray[np.float64]

    @property
    def setting(self) -> tuple[str, str, float, float, float]:
        """Values that are equal in all repeats."""
        return self.method, self.training, self.alpha, self.mu, self.n_aug


@dataclass(frozen=True)
class Point:
    """A metric at one setting, over its repeats.

    Attributes:
        member: any model of the setting.
        metric: name of the metric.
        estimate: mean over encoders, or over seeds of one encoder; 95 % interval over patients and, for several, over
            encoders or seeds; n groups.
        seed_sd: standard deviation over encoders or seeds; NaN for one.
        num_encoders: number of encoders.
        num_seeds: number of runs of all encoders.
        of_runs: pretraining seed and training seed -> metric of the run.
        replicates: Shape (B,), over resampled patients and encoders (seeds); column b of all points is of one
            resampling.
    """

    member: Member
    metric: str
    estimate: Estimate
    seed_sd: float
    num_encoders: int
    num_seeds: int
    of_runs: Mapping[tuple[int, int], float]
    replicates: NDArray[np.float64]

    @property
    def about(self) -> dict[str, object]:
        """Setting and metric, for a table."""
        names = ("method", "training", "alpha", "num_labels", "mu", "n_aug")
        return {name: getattr(self.member, name) for name in names} | {"metric": self.metric}

    def row(self) -> dict[str, object]:
        """Row of a table."""
        return self.about | {
            "value": self.estimate.value,
            "low": self.estimate.low,
            "high": self.estimate.high,
            "seed_sd": self.seed_sd,
            "num_encoders": self.num_encoders,
            "num_seeds": self.num_seeds,
        }

    def run_rows(self) -> list[dict[str, object]]:
        """Rows of a table, one per run."""
        return [
            self.about | {"encoder": encoder, "seed": seed, "value": value}
            for (encoder, seed), value in self.of_runs.items()
        ]


def curve_points(
    members: Iterable[Member],
    references: Mapping[str, NDArray],
    groups: NDArray | None,
    *,
    seed: int,
    num_replicates: int,
) -> list[Point]:
    """Every metric at every setting.

    Members of equal setting and repeat (a fine-tuned model does not depend on mu) count once.

    Args:
        members: of one family: equal patches, equal params but for the settings.
        references: suffix of the metric's name -> Shape (N,), classes or scores (`compare_models`).
        groups: Shape (N,), patient or slide of each patch; None: patches are independent.
    """
    by_setting: dict[tuple, dict[tuple[int, int], Member]] = {}
    for member in members:
        by_setting.setdefault(member.setting, {})[member.repeat] = member
    num_rows = len(next(iter(references.values())))
    resampling = Resampling(num_rows, groups, seed=seed, num_replicates=num_replicates)
    points = []
    for same in by_setting.values():
        of_repeats = [same[repeat] for repeat in sorted(same)]
        for suffix, reference in references.items():
            points += _points(of_repeats, suffix, reference, resampling, seed)
    return points


def _points(
    members: Sequence[Member], suffix: str, reference: NDArray, resampling: Resampling, seed: int
) -> list[Point]:
    runs = [metric_replicates(reference, member.predictions, resampling) for member in members]
    encoders = [member.repeat[0] for member in members]
    num_encoders = len(set(encoders))
    picked = _picked(seed, num_encoders if num_encoders > 1 else len(members), resampling.num_replicates)
    points = []
    for metric in runs[0]:
        if metric + suffix not in HEADLINES:
            continue
        of_runs = np.array([replicates_of[metric][0] for replicates_of in runs])
        values = by_encoder(of_runs, encoders)
        replicates = by_encoder(np.stack([replicates_of[metric][1] for replicates_of in runs]), encoders)
        estimate, seed_sd = estimate_over_seeds(metric, values, replicates.mean(axis=0), resampling)
        of_both = np.take_along_axis(replicates, picked, axis=0).mean(axis=0)
        each = dict(zip([member.repeat for member in members], of_runs.tolist(), strict=True))
        name, num_runs = metric + suffix, len(members)
        points.append(Point(members[0], name, estimate, seed_sd, num_encoders, num_runs, each, of_both))
    return points


def _picked(seed: int, num: int, num_replicates: int) -> NDArray[np.int64]:
    """Numbers of the encoders or seeds in each replicate, sampled with replacement. Shape (num, B)."""
    return generator(seed, "seeds").integers(num, size=(num, num_replicates))


def main_setting(points: Iterable[Point], preferred: tuple[float, float]) -> tuple[float, float]:
    """mu and n_aug of the charts: the preferred values if any student has them, else those of most alphas."""
    students = {
        (p.member.mu, p.member.n_aug, p.member.alpha) for p in points if p.member.training != "finetune"
    }
    counts = Counter((mu, n_aug) for mu, n_aug, _ in sorted(students))
    return preferred if preferred in counts or not counts else counts.most_common(1)[0][0]


def of_setting(points: Iterable[Point], mu: float, n_aug: float) -> list[Point]:
    """Points of the fine-tuned models, and of the students of one mu and n_aug."""
    return [
        p for p in points if p.member.training == "finetune" or (p.member.mu, p.member.n_aug) == (mu, n_aug)
    ]


def saved_labels(points: Iterable[Point], metric: str) -> pd.DataFrame:
    """Labels that every other model saves at each number of labels, against supervised learning.

    Args:
        points: of one family, students of one mu and n_aug.

    Returns:
        One row per model and number of labels: method, training, alpha, metric, value and `LabelsSaved.as_dict`; empty
        without the baseline.
    """
    curves = _curves(points, metric)
    if BASELINE not in curves:
        return pd.DataFrame()
    baseline = _learning_curve(curves.pop(BASELINE))
    rows = []
    for point in itertools.chain(*curves.values()):
        member, value = point.member, point.estimate.value
        saved = labels_saved(baseline, member.num_labels, value, point.replicates)
        model = {"method": member.method, "training": member.training, "alpha": member.alpha}
        rows.append(model | {"metric": metric, "value": value} | saved.as_dict())
    return pd.DataFrame(rows)


def labels_for_score(points: Iterable[Point], metric: str, score: float) -> pd.DataFrame:
    """Number of labels that every model needs for a score, with an interval or the reason why it is unknown.

    Args:
        points: of one family, students of one mu and n_aug.
    """
    rows = []
    for (method, training), curve in _curves(points, metric).items():
        needed = labels_needed(_learning_curve(curve), score)
        rows.append(
            {"method": method, "training": training, "metric": metric, "score": score}
            | {"num_labels": needed.value, "low": needed.low, "high": needed.high}
            | {"extrapolated": needed.extrapolated, "text": str(needed), "reason": needed.reason}
        )
    return pd.DataFrame(rows)


def power_laws(points: Iterable[Point], metric: str) -> pd.DataFrame:
    """Power laws of extrapolated numbers of labels (`learning_curve.fitted_law`).

    Args:
        points: of one family, students of one mu and n_aug.

    Returns:
        One row per model with a law: method, training, metric, and ceiling, drop, exponent and largest of `PowerLaws`.
    """
    columns = ("ceiling", "drop", "exponent")
    rows = []
    for (method, training), curve in _curves(points, metric).items():
        law = fitted_law(_learning_curve(curve))
        if law is not None:
            numbers = {name: float(getattr(law, name)[0]) for name in columns} | {"largest": law.largest}
            rows.append({"method": method, "training": training, "metric": metric} | numbers)
    return pd.DataFrame(rows, columns=["method", "training", "metric", *columns, "largest"])


def _curves(points: Iterable[Point], metric: str) -> dict[tuple[str, str], list[Point]]:
    """Points of a metric by method and training, in order of labels."""
    curves: dict[tuple[str, str], list[Point]] = {}
    for point in sorted(points, key=lambda point: point.member.num_labels):
        if point.metric == metric:
            curves.setdefault((point.member.method, point.member.training), []).append(point)
    return curves


def _learning_curve(points: Sequence[Point]) -> LearningCurve:
    return LearningCurve(
        [point.member.num_labels for point in points],
        [point.estimate.value for point in points],
        np.stack([point.replicates for point in points]),
    )
