"""Tables of all runs -> what each model predicts, seed by seed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from histo_monai.errors import InputError
from histo_monai.roles import FINETUNED, STUDENT
from histo_monai.tables.predictions import Predictions
from histo_monai.tables.slide_scores import SlideScores

Key = tuple[str, int, str]
"""Method, seed and student of a run."""

Read = Mapping[Key, Predictions] | Mapping[Key, SlideScores]
"""The table of each run."""


def by_model(
    read: Read, methods: Sequence[str], students: Sequence[str], seeds: Sequence[int]
) -> dict[tuple[str, str], list[NDArray[np.float64]]]:
    """Method and training ("finetune", or a student) -> predictions, in the order of the seeds.

    Students of one method and seed start from the same fine-tuned model, which counts once.

    Raises:
        InputError: they do not.
    """
    first, *others = students
    for method, seed, other in itertools.product(methods, seeds, others):
        one, same = read[method, seed, first], read[method, seed, other]
        if not np.array_equal(one.predictions[FINETUNED], same.predictions[FINETUNED]):
            raise InputError(
                f"{one.path} and {same.path}: their fine-tuned models differ; run evaluate for both"
            )
    return {
        (method, "finetune"): [read[method, seed, first].predictions[FINETUNED] for seed in seeds]
        for method in methods
    } | {
        (method, student): [read[method, seed, student].predictions[STUDENT] for seed in seeds]
        for student in students
        for method in methods
    }
