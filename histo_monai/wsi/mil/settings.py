"""Params of multiple-instance learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.utils.settings.rules import Count, Positive, Range


@dataclass(frozen=True)
class MilSettings:
    """Training on slide labels.

    Attributes:
        num_folds: folds of labeled slides outside the test; a network trained without a slide scores it.
        epochs: each uses every slide once, one per step.
        lr: AdamW; linear warmup in a tenth of the steps, then cosine decay.
        weight_decay: decoupled.
        hidden: as in `AttentionPooling`.
        dropout: as in `AttentionPooling`.
        patches_per_step: random subset of a larger slide, new in each step.
    """

    num_folds: Annotated[int, Range(2)]
    epochs: Count
    lr: Positive
    weight_decay: Annotated[float, Range(0.0)]
    hidden: Count
    dropout: Annotated[float, Range(0.0, 0.9)]
    patches_per_step: Count
