"""What params can set of the mixed teacher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.semisupervised.students.settings import UnlabeledWeight
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class MixedTeacherSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, and four more; `strong` does nothing: there are no such views.

    Attributes:
        temperature: of the sharpening of classes.
        beta: both parameters of the distribution that mixing weights are drawn from.
        momentum: of the class shares that are followed, which guesses are aligned by; 1: guesses are not aligned.
        spread_momentum: the same of the spreads of scores, to which guesses are stretched; 1: they are not stretched.
    """

    temperature: Annotated[float, Range(0.01, 10.0)]
    beta: Annotated[float, Range(0.01, 10.0)]
    momentum: Annotated[float, Range(0.0, 1.0)]
    spread_momentum: Annotated[float, Range(0.0, 1.0)]
