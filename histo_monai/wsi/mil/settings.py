"""What params can set of multiple-instance learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.utils.settings.rules import Count, Positive, Range


@dataclass(frozen=True)
class MilSettings:
    """How slides are learned from their labels.

    Attributes:
        num_folds: of the labeled slides that are not tested on; each is scored by a network that has not seen it.
        epochs: each shows every slide once, one at a time.
        lr: of AdamW, up a line in the first tenth of the steps and down a cosine then.
        weight_decay: decoupled from the gradient.
        hidden: see `AttentionPooling`.
        dropout: see `AttentionPooling`.
        patches_per_step: of a slide with more, so many are drawn anew each time that it is shown.
    """

    num_folds: Annotated[int, Range(2)]
    epochs: Count
    lr: Positive
    weight_decay: Annotated[float, Range(0.0)]
    hidden: Count
    dropout: Annotated[float, Range(0.0, 0.9)]
    patches_per_step: Count
