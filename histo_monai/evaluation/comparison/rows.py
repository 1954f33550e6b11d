"""Rows of the comparison: names of models, and pairs of models to test."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple, Self

from histo_monai.evaluation.baselines.models import COLOR

FINETUNE = "finetune"
LINEAR, KNN = "linear", "knn"
"""Trainings of the fast baselines on the features of a method's encoder."""
ATTENTION, MOMENTS = "attention", "moments"
SLIDE_MODELS = (ATTENTION, MOMENTS)
"""Models trained on slide labels alone: attention pooling over an encoder's features; and a linear model of a slide's
mean features, with or without their standard deviations."""
_AND_COLOR = f"+{COLOR}"

MAIN_FAMILY, BASELINES_FAMILY = "models", "baselines"
"""All pairs of fine-tuned models, students and color; and the fast baselines, each against these models."""


class Row(NamedTuple):
    """A model in the tables.

    Attributes:
        method: pretraining method; `COLOR` without one.
        training: "finetune", a student, "linear", "knn", "<student>+color" (stacked), "attention", "moments" (both of
            slides), or empty: color alone.
    """

    method: str
    training: str

    @property
    def id(self) -> str:
        """Id: "rsp-finetune", "rsp-paper" (a student), "rsp-linear", "rsp-paper+color", "color"."""
        return f"{self.method}-{self.training}" if self.training else self.method

    @classmethod
    def of(cls, row_id: str) -> Self:
        """Row of an id."""
        method, _, training = row_id.partition("-")
        return cls(method, training)

    @property
    def student(self) -> str:
        """Student of the row, also of a stacked row; empty for other rows."""
        others = ("", FINETUNE, LINEAR, KNN, *SLIDE_MODELS)
        return "" if self.training in others else self.training.removesuffix(_AND_COLOR)

    @property
    def is_stacked(self) -> bool:
        """Whether the row is a student stacked with color."""
        return self.training.endswith(_AND_COLOR)

    @property
    def is_network(self) -> bool:
        """Whether the row is a fine-tuned model, a student, or attention pooling."""
        return self.training in (FINETUNE, ATTENTION) or (bool(self.student) and not self.is_stacked)

    @property
    def is_baseline(self) -> bool:
        """Whether the row is a fast baseline other than color alone."""
        return not self.is_network and self != REFERENCE


REFERENCE = Row(COLOR, "")
"""Color alone, without a pretraining method."""
SUPERVISED = Row("random", FINETUNE)
"""Supervised baseline: the encoder at its random initialization, fine-tuned."""


def stacked_row(method: str, student: str) -> Row:
    """Row of a student stacked with color."""
    return Row(method, student + _AND_COLOR)


def families(rows: Sequence[Row]) -> dict[str, list[tuple[str, str]]]:
    """Pairs of ids to test, by the family of their adjustment.

    Baselines do not reduce the power of the main comparisons. Each baseline is tested against the fine-tuned model and
    the students of its method (stacked: against its own student alone) and against color, in a family of its own.

    Args:
        rows: all rows of the table.
    """
    main = [row for row in rows if not row.is_baseline]
    of_baselines = [
        (one.id, other.id)
        for one in rows
        if one.is_baseline
        for other in main
        if other == REFERENCE
        or (other.method == one.method and (not one.is_stacked or other.student in ("", one.student)))
    ]
    pairs = [(first.id, second.id) for first, second in combinations(main, 2)]
    return {MAIN_FAMILY: pairs, BASELINES_FAMILY: of_baselines}
