"""What a reader of a comparison must know beside its intervals: few patients, few seeds, one encoder."""

from __future__ import annotations

from collections.abc import Sequence

from histo_monai.data.tables.predictions import Predictions
from histo_monai.data.tables.tasks import of_one_group

FEW_GROUPS, FEW_SEEDS = 20, 5

_ONE_ENCODER = (
    "every method has one encoder: how lucky its pretraining was is in no interval and in no test; "
    "`-S 'pretraining_seeds=[0,1,2,3,4]'` tells, and draws of the labels with it"
)
_ONE_SEED = (
    "one seed: intervals and verdicts are of these trained models, and silent about other draws of the labels, "
    "initializations and orders of the data; `-S 'training_seeds=[0,1,2,3,4]'` tells"
)
OTHER_LABELS = "runs were given different labels, so their cross-validations are not compared with each other"
_F_BASED = (
    "ICC intervals of one seed are F-based and take patches as independent; the tests, and intervals over several "
    "seeds, resample what belongs together"
)


def split_warnings(split: str, part: Predictions) -> list[str]:
    """What a reader of a split's intervals must know."""
    warnings = of_one_group(part.rows, split)
    num_groups = len(set(part.groups))
    if num_groups < FEW_GROUPS:
        warnings.append(
            f"{split}: {num_groups} {part.unit} only: intervals are wide, and a difference must be large to show"
        )
    return warnings


def repeat_warnings(encoders: Sequence[int], seeds: Sequence[int], are_scores: bool) -> list[str]:
    """What a reader must know where there are few encoders or seeds.

    Args:
        seeds: of what follows the pretraining.
        are_scores: whether scores are predicted.
    """
    warnings = [_F_BASED] if are_scores and len(encoders) * len(seeds) == 1 else []
    by, of = ("encoders", encoders) if len(encoders) > 1 else ("seeds", seeds)
    if len(of) == 1:
        warnings.append(_ONE_SEED)
    elif len(of) < FEW_SEEDS:
        warnings.append(
            f"{len(of)} {by}: their spread is hardly known, and only large differences show; run {FEW_SEEDS}"
        )
    return [*warnings, _ONE_ENCODER] if by == "seeds" else warnings
