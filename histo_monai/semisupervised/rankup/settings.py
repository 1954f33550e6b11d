"""What params can set of RankUp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.semisupervised.students.settings import UnlabeledWeight
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class RankUpSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, where `weight` is that of the order of unlabeled images (published: 0.2), and three more.

    Attributes:
        threshold: probability that one image must have to be the higher one, for a pair to count (published: 0.95).
        ranking: weight of the order of labeled images (published: 0.2).
        alignment: weight of the aligned pseudo scores; 0 leaves them out.
    """

    threshold: Annotated[float, Range(0.5, 0.9999)]
    ranking: Annotated[float, Range(0.0)]
    alignment: Annotated[float, Range(0.0)]
