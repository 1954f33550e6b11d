"""Predictions of each model over all runs, from their tables."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from histo_monai.data.tables.predictions import Predictions
from histo_monai.data.tables.slide_scores import SlideScores
from histo_monai.evaluation.baselines.models import COLOR, ENCODER_KNN, ENCODER_LINEAR, STACKED
from histo_monai.evaluation.comparison.rows import FINETUNE, KNN, LINEAR, REFERENCE, Row, stacked_row
from histo_monai.utils.errors import InputError
from histo_monai.utils.roles import FINETUNED, STUDENT

Key = tuple[str, int, int, str]
"""Pretraining method, pretraining seed, training seed and student of a run."""

Repeat = tuple[int, int]
"""Pretraining seed and training seed."""

Read = Mapping[Key, Predictions] | Mapping[Key, SlideScores]
"""The table of each run."""

OfRows = dict[Row, list[NDArray[np.float64]]]
"""Row of the comparison -> predictions, in the order of the repeats."""


def by_model(
    read: Read, methods: Sequence[str], students: Sequence[str], repeats: Sequence[Repeat]
) -> OfRows:
    """Predictions of fine-tuned models and students, by row of the comparison.

    Students of one method and repeat start from one fine-tuned model, which counts once.

    Raises:
        InputError: their fine-tuned models differ.
    """
    first, *others = students
    for method, repeat, other in itertools.product(methods, repeats, others):
        one, same = read[method, *repeat, first], read[method, *repeat, other]
        if not np.array_equal(one.predictions[FINETUNED], same.predictions[FINETUNED]):
            raise InputError(
                f"{one.path} and {same.path}: their fine-tuned models differ. Fix: run evaluate for both."
            )

    def of(name: str, method: str, student: str) -> list[NDArray[np.float64]]:
        return [read[method, *repeat, student].predictions[name] for repeat in repeats]

    return {Row(method, FINETUNE): of(FINETUNED, method, first) for method in methods} | {
        Row(method, student): of(STUDENT, method, student) for student in students for method in methods
    }


def by_baseline(
    read: Read, methods: Sequence[str], students: Sequence[str], repeats: Sequence[Repeat]
) -> OfRows:
    """Predictions of the fast baselines, color first.

    Color is independent of the method, and a frozen encoder of the student: of several runs, one counts.
    """

    def of(name: str, method: str, student: str) -> list[NDArray[np.float64]]:
        return [read[method, *repeat, student].predictions[name] for repeat in repeats]

    first = students[0]
    return (
        {REFERENCE: of(COLOR, methods[0], first)}
        | {Row(method, LINEAR): of(ENCODER_LINEAR, method, first) for method in methods}
        | {Row(method, KNN): of(ENCODER_KNN, method, first) for method in methods}
        | {
            stacked_row(method, student): of(STACKED, method, student)
            for student in students
            for method in methods
        }
    )
