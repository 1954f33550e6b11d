"""What params can set of the paper's consistency training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from histo_monai.semisupervised.settings import MethodSettings
from histo_monai.semisupervised.students.settings import StrongRanges
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class PaperSettings(MethodSettings):
    """The loss, the strong views, and which epoch predicts.

    Attributes:
        weight: of the consistency loss; lambda of the paper.
        threshold: confidence below which a pseudo label does not count.
        keep: "best": the epoch of the best validation, the fine-tuned model being epoch 0; "last": the last epoch.
        strong: see `StrongRanges`; a view has `n_aug` of all ten operations, of magnitudes 1 to 10.
    """

    weight: Annotated[float, Range(0.0)]
    threshold: Annotated[float, Range(0.0, 0.999)]
    keep: Literal["best", "last"]
    strong: StrongRanges

    @property
    def keeps_best_epoch(self) -> bool:
        """See `MethodSettings`."""
        return self.keep == "best"
