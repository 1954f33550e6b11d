"""Whole slides: those who diagnose maps and those who learn from labels of slides alone, on the same slides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from histo_monai.data.tables.slide_classes import TEST, SlideClasses
from histo_monai.data.tables.slide_scores import SlideScores, check_same_slides
from histo_monai.data.tables.tasks import patient_or_slide
from histo_monai.evaluation.comparison.models import Comparison, compare_models
from histo_monai.evaluation.comparison.rows import SLIDE_ARMS, Row, families
from histo_monai.evaluation.metrics import auc
from histo_monai.evaluation.runs import Key, OfRows, Repeat, by_model
from histo_monai.utils.errors import InputError

OfSlides = Mapping[tuple[str, int, int], SlideClasses]
"""Method, seed of its encoder and seed -> what learned from labels of slides."""


@dataclass(frozen=True)
class Axes:
    """Of the experiment.

    Attributes:
        methods: whose encoders look at whole slides.
        students: whose models map them.
        repeats: seed of the encoder and seed of what comes after it.
        positive: label that slides are diagnosed for.
        seed: of the bootstrap.
        num_replicates: of the bootstrap.
    """

    methods: Sequence[str]
    students: Sequence[str]
    repeats: Sequence[Repeat]
    positive: str
    seed: int
    num_replicates: int


@dataclass(frozen=True)
class SlideComparison:
    """Of one set of slides.

    Attributes:
        part: `TEST` or `CROSS_FITTED`.
        about: how many slides, in words.
        comparison: values and tests.
    """

    part: str
    about: str
    comparison: Comparison


def compare_slides(
    diagnosed: Mapping[Key, SlideScores], learned: OfSlides, axes: Axes
) -> SlideComparison | None:
    """Slide AUC of all who tell positive slides from others; of labels alone, all metrics of classes.

    Args:
        diagnosed: by maps; of each run, no predictions where there was no diagnosis.
        learned: from labels of slides, no predictions where nothing was learned.

    Returns:
        None where there is neither.

    Raises:
        InputError: runs are of different slides.
    """
    of_maps = {key: read for key, read in diagnosed.items() if read.predictions}
    of_labels = {key: read for key, read in learned.items() if read.predictions}
    for other in of_maps.values():
        check_same_slides(next(iter(of_maps.values())), other)
    for learner in of_labels.values():
        _check_same(next(iter(of_labels.values())), learner)
    if of_maps:
        return _told_from_others(of_maps, of_labels, axes)
    return _classes(of_labels, axes) if of_labels else None


def _check_same(first: SlideClasses, other: SlideClasses) -> None:
    same = first.rows[["slide_id", "label"]].equals(other.rows[["slide_id", "label"]])
    if not same or first.classes != other.classes:
        raise InputError(f"{first.path} and {other.path}: of different slides or classes; run mil for both")


def _of_arms(learned: OfSlides, axes: Axes) -> OfRows:
    """Row -> probabilities (n, K), in the order of the repeats."""
    return {
        Row(method, arm): [learned[method, *repeat].predictions[arm] for repeat in axes.repeats]
        for arm in SLIDE_ARMS
        for method in axes.methods
        if (method, *axes.repeats[0]) in learned
    }


def _told_from_others(diagnosed: Mapping[Key, SlideScores], learned: OfSlides, axes: Axes) -> SlideComparison:
    """AUC is of the ranks alone; where the border of a machine taught by a few slides lies is not compared."""
    first = next(iter(diagnosed.values()))
    rows = by_model(diagnosed, axes.methods, axes.students, axes.repeats)
    for row, of_row in _of_arms(_on(first, learned, axes.positive), axes).items():
        number = next(iter(learned.values())).classes.index(axes.positive)
        rows[row] = [shares[:, number] for shares in of_row]
    groups = patient_or_slide(first.rows)
    is_positive = (first.rows["label"] == axes.positive).to_numpy()
    comparison = compare_models(
        {"": is_positive.astype(int)},
        {row.id: [_two_classes(scores) for scores in of_row] for row, of_row in rows.items()},
        groups.to_numpy(dtype=object),
        seed=axes.seed,
        num_replicates=axes.num_replicates,
        families=families(list(rows)),
        encoders=[encoder for encoder, _ in axes.repeats],
    )
    values = [replace(one, metric="slide_auc") for one in comparison.values if one.metric == "macro_auc"]
    if len(axes.repeats) == 1 and groups.is_unique:  # DeLong's own interval, as metrics.json has it.
        alone = {row.id: auc(is_positive, of_row[0]) for row, of_row in rows.items()}
        values = [replace(one, estimate=alone[one.model]) for one in values]
    tests = [replace(one, metric="slide_auc") for one in comparison.tests if one.metric == "macro_auc"]
    about = f"{is_positive.sum()} {axes.positive} and {(~is_positive).sum()} other slides"
    return SlideComparison(TEST, about, Comparison(values, tests))


def _on(first: SlideScores, learned: OfSlides, positive: str) -> OfSlides:
    """What was learned from labels, where it is of the slides that maps diagnose, and of their label."""
    ids = first.rows[["slide_id", "label"]]
    return {
        key: read
        for key, read in learned.items()
        if positive in read.classes and read.rows[["slide_id", "label"]].equals(ids)
    }


def _classes(learned: OfSlides, axes: Axes) -> SlideComparison:
    first = next(iter(learned.values()))
    rows = _of_arms(learned, axes)
    comparison = compare_models(
        {"": first.labels},
        {row.id: of_row for row, of_row in rows.items()},
        first.groups,
        seed=axes.seed,
        num_replicates=axes.num_replicates,
        families=families(list(rows)),
        encoders=[encoder for encoder, _ in axes.repeats],
    )
    names = {metric: f"slide_{metric}" for metric in (one.metric for one in comparison.values)}
    if len(first.classes) == 2:
        names["macro_auc"] = "slide_auc"
    comparison = Comparison(
        [replace(one, metric=names[one.metric]) for one in comparison.values],
        [replace(one, metric=names[one.metric]) for one in comparison.tests],
    )
    counts = first.rows["label"].value_counts().sort_index()
    about = ", ".join(f"{num} {label}" for label, num in counts.items())
    return SlideComparison(first.part, f"{about} slides", comparison)


def _two_classes(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores of slides as shares of two classes in the same order, shape (n, 2)."""
    ranks = stats.rankdata(scores) / (len(scores) + 1)
    return np.column_stack([1 - ranks, ranks])
