"""Tables of all runs -> what each model predicts, run by run."""

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
"""Method, seed of its encoder, seed and student of a run."""

Repeat = tuple[int, int]
"""Seed of the encoder and seed of what comes after it."""

Read = Mapping[Key, Predictions] | Mapping[Key, SlideScores]
"""The table of each run."""

OfRows = dict[Row, list[NDArray[np.float64]]]
"""Row of the comparison -> predictions, in the order of the repeats."""


def by_model(
    read: Read, methods: Sequence[str], students: Sequence[str], repeats: Sequence[Repeat]
) -> OfRows:
    """What fine-tuned models and students predict.

    Students of one method and repeat start from the same fine-tuned model, which counts once.

    Raises:
        InputError: they do not.
    """
    first, *others = students
    for method, repeat, other in itertools.product(methods, repeats, others):
        one, same = read[method, *repeat, first], read[method, *repeat, other]
        if not np.array_equal(one.predictions[FINETUNED], same.predictions[FINETUNED]):
            raise InputError(
                f"{one.path} and {same.path}: their fine-tuned models differ; run evaluate for both"
            )

    def of(name: str, method: str, student: str) -> list[NDArray[np.float64]]:
        return [read[method, *repeat, student].predictions[name] for repeat in repeats]

    return {Row(method, FINETUNE): of(FINETUNED, method, first) for method in methods} | {
        Row(method, student): of(STUDENT, method, student) for student in students for method in methods
    }


def by_arm(read: Read, methods: Sequence[str], students: Sequence[str], repeats: Sequence[Repeat]) -> OfRows:
    """What the arms that cost seconds predict, color first.

    Color knows no method and a frozen encoder no student: where several runs hold their predictions, one counts.
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
