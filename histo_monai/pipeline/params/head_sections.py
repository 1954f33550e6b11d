"""Sections of params.yaml for heads on frozen features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.utils.settings.rules import Range, Unique

FinetuneMode = Literal["all", "last", "adapters", "head"]


@dataclass(frozen=True)
class HeadParams:
    """Heads on frozen features.

    Attributes:
        rule: as of `finetuning.heads.settings.SelectionSettings`.
        classes: names of heads for classes; the first is the default where labels cannot be cross-validated.
        scores: names of heads for scores.
        num_folds: of patients inside the label budget, at most.
    """

    rule: Literal["best", "one_se", "average", "stack"]
    classes: Annotated[tuple[Literal["class_means", "logistic", "neighbors", "discriminant"], ...], Unique()]
    scores: Annotated[tuple[Literal["ridge", "kernel_ridge", "neighbors"], ...], Unique()]
    num_folds: Annotated[int, Range(2)]

    @property
    def settings(self) -> SelectionSettings:
        """Settings for `finetuning.heads.selection.select_head`."""
        return SelectionSettings(
            class_heads=self.classes, score_heads=self.scores, rule=self.rule, num_folds=self.num_folds
        )
