"""Warnings beside a comparison's intervals: few patients, few seeds, one encoder."""

from __future__ import annotations

from collections.abc import Sequence

from histo_monai.data.tables.predictions import Predictions
from histo_monai.data.tables.tasks import of_one_group

FEW_GROUPS, FEW_SEEDS = 20, 5

_ONE_ENCODER = (
    "one encoder per method: intervals and tests leave out variation between pretrainings. Fix: run with "
    "`-S 'pretraining_seeds=[0,1,2,3,4]'`, which varies the label subset, too."
)
_ONE_SEED = (
    "one seed: intervals and verdicts leave out variation between label subsets, initializations and data orders. "
    "Fix: run with `-S 'training_seeds=[0,1,2,3,4]'`."
)
OTHER_LABELS = "runs have different labels, so their cross-validations are not compared"
_F_BASED = (
    "ICC intervals of one seed are F-based and assume independent patches; tests, and intervals over several seeds, "
    "resample patients or slides"
)


def split_warnings(split: str, part: Predictions) -> list[str]:
    """Warnings about a split's intervals."""
    warnings = of_one_group(part.rows, split)
    num_groups = len(set(part.groups))
    if num_groups < FEW_GROUPS:
        warnings.append(
            f"{split}: only {num_groups} {part.unit}: intervals are wide, so only large differences are detected"
        )
    return warnings


def repeat_warnings(encoders: Sequence[int], seeds: Sequence[int], are_scores: bool) -> list[str]:
    """Warnings about few encoders or seeds.

    Args:
        seeds: training seeds.
        are_scores: whether the labels are scores.
    """
    warnings = [_F_BASED] if are_scores and len(encoders) * len(seeds) == 1 else []
    by, of = ("encoders", encoders) if len(encoders) > 1 else ("seeds", seeds)
    if len(of) == 1:
        warnings.append(_ONE_SEED)
    elif len(of) < FEW_SEEDS:
        warnings.append(
            f"only {len(of)} {by}: their spread is uncertain, so only large differences are detected. "
            f"Fix: run {FEW_SEEDS}."
        )
    return [*warnings, _ONE_ENCODER] if by == "seeds" else warnings
