"""Comparison of slide-level models: diagnoses from heat-maps, and models trained on slide labels alone."""

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
from histo_monai.evaluation.comparison.rows import SLIDE_MODELS, Row, families
from histo_monai.evaluation.metrics import auc
from histo_monai.evaluation.runs import Key, OfRows, Repeat, by_model
from histo_monai.utils.errors import InputError

OfSlides = Mapping[tuple[str, int, int], SlideClasses]
"""Pretraining method, pretraining seed and training seed -> models trained on slide labels."""


@dataclass(frozen=True)
class Axes:
    """Methods, students and repeats of an experiment.

    Attributes:
        methods: pretraining methods.
        students: semi-supervised methods.
        repeats: pretraining seed and training seed.
        positive: slide label to diagnose.
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
    """Comparison on one set of slides.

    Attributes:
        part: `TEST` or `CROSS_FITTED`.
        about: number of slides, in words.
        comparison: values and tests.
    """

    part: str
    about: str
    comparison: Comparison


def compare_slides(
    diagnosed: Mapping[Key, SlideScores], learned: OfSlides, axes: Axes
) -> SlideComparison | None:
    """Comparison by slide AUC; without diagnoses from heat-maps, by all classification metrics.

    Args:
        diagnosed: from heat-maps, by run; without predictions where there was no diagnosis.
        learned: from slide labels; without predictions where nothing was trained.

    Returns:
        None without any predictions.

    Raises:
        InputError: runs have different slides.
    """
    of_maps = {key: read for key, read in diagnosed.items() if read.predictions}
    of_labels = {key: read for key, read in learned.items() if read.predictions}
    for other in of_maps.values():
        check_same_slides(next(iter(of_maps.values())), other)
    for learner in of_labels.values():
        _check_same(next(iter(of_labels.values())), learner)
    if of_maps:
        return _by_slide_auc(of_maps, of_labels, axes)
    return _classes(of_labels, axes) if of_labels else None


def _check_same(first: SlideClasses, other: SlideClasses) -> None:
    same = first.rows[["slide_id", "label"]].equals(other.rows[["slide_id", "label"]])
    if not same or first.classes != other.classes:
        raise InputError(
            f"{first.path} and {other.path}: different slides or classes. Fix: run mil for both."
        )


def _of_slide_models(learned: OfSlides, axes: Axes) -> OfRows:
    """Row -> probabilities (n, K), in the order of the repeats."""
    return {
        Row(method, name): [learned[method, *repeat].predictions[name] for repeat in axes.repeats]
        for name in SLIDE_MODELS
        for method in axes.methods
        if (method, *axes.repeats[0]) in learned
    }


def _by_slide_auc(diagnosed: Mapping[Key, SlideScores], learned: OfSlides, axes: Axes) -> SlideComparison:
    """Comparison by AUC, which needs ranks alone: thresholds from few slides are not compared."""
    first = next(iter(diagnosed.values()))
    rows = by_model(diagnosed, axes.methods, axes.students, axes.repeats)
    for row, of_row in _of_slide_models(_on(first, learned, axes.positive), axes).items():
        number = next(iter(learned.values())).classes.index(axes.positive)
        rows[row] = [probabilities[:, number] for probabilities in of_row]
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
    """Models trained on slide labels, where their slides and labels equal those of the diagnoses."""
    ids = first.rows[["slide_id", "label"]]
    return {
        key: read
        for key, read in learned.items()
        if positive in read.classes and read.rows[["slide_id", "label"]].equals(ids)
    }


def _classes(learned: OfSlides, axes: Axes) -> SlideComparison:
    first = next(iter(learned.values()))
    rows = _of_slide_models(learned, axes)
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
    """Ranks of slide scores as probabilities of two classes, shape (n, 2)."""
    ranks = stats.rankdata(scores) / (len(scores) + 1)
    return np.column_stack([1 - ranks, ranks])
