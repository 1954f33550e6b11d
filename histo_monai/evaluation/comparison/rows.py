"""Rows of the comparison: what models are called there, and which of them are tested against each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple, Self

from histo_monai.evaluation.baselines.models import COLOR

FINETUNE = "finetune"
LINEAR, KNN = "linear", "knn"
"""Trainings of the arms on the features of a method's encoder."""
ATTENTION, MOMENTS = "attention", "moments"
SLIDE_ARMS = (ATTENTION, MOMENTS)
"""What learns from labels of slides alone: attention pooling over features of a method's encoder; and a linear model of
the mean features of a slide, or of these and their standard deviations."""
_AND_COLOR = f"+{COLOR}"

MAIN_FAMILY, ARMS_FAMILY = "models", "arms"
"""Fine-tuned models, students and color, all pairs; and the arms that cost seconds, each against these."""


class Row(NamedTuple):
    """A model in the tables.

    Attributes:
        method: of the pretraining; `COLOR` where none is used.
        training: "finetune", a student, "linear", "knn", "<student>+color" (stacked), "attention", "moments" (both of
            slides), or empty: color alone.
    """

    method: str
    training: str

    @property
    def id(self) -> str:
        """ "rsp-finetune", "rsp-paper" (a student), "rsp-linear", "rsp-paper+color", "color"."""
        return f"{self.method}-{self.training}" if self.training else self.method

    @classmethod
    def of(cls, row_id: str) -> Self:
        """From its id."""
        method, _, training = row_id.partition("-")
        return cls(method, training)

    @property
    def student(self) -> str:
        """The student that it is, or is stacked with; empty for other rows."""
        others = ("", FINETUNE, LINEAR, KNN, *SLIDE_ARMS)
        return "" if self.training in others else self.training.removesuffix(_AND_COLOR)

    @property
    def is_stacked(self) -> bool:
        """A student with color beside it."""
        return self.training.endswith(_AND_COLOR)

    @property
    def is_network(self) -> bool:
        """A fine-tuned model, a student, or attention pooling."""
        return self.training in (FINETUNE, ATTENTION) or (bool(self.student) and not self.is_stacked)

    @property
    def is_arm(self) -> bool:
        """Neither a network nor color alone."""
        return not self.is_network and self != REFERENCE


REFERENCE = Row(COLOR, "")
"""Color alone: it knows no method."""
SUPERVISED = Row("random", FINETUNE)
"""The supervised baseline: the encoder at its random initialization, fine-tuned."""


def stacked_row(method: str, student: str) -> Row:
    """A student stacked with color."""
    return Row(method, student + _AND_COLOR)


def families(rows: Sequence[Row]) -> dict[str, list[tuple[str, str]]]:
    """Pairs of ids that are tested, by the family within which their p-values are adjusted.

    More arms do not cost the main comparisons their power: each arm has tests against the fine-tuned model and the
    students of its method (one that is stacked with a student: against that student alone) and against color, and these
    are a family of their own.

    Args:
        rows: all of the table.
    """
    main = [row for row in rows if not row.is_arm]
    of_arms = [
        (arm.id, other.id)
        for arm in rows
        if arm.is_arm
        for other in main
        if other == REFERENCE
        or (other.method == arm.method and (not arm.is_stacked or other.student in ("", arm.student)))
    ]
    pairs = [(first.id, second.id) for first, second in combinations(main, 2)]
    return {MAIN_FAMILY: pairs, ARMS_FAMILY: of_arms}
