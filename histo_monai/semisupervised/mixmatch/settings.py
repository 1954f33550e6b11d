"""What params can set of MixMatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.semisupervised.students.settings import UnlabeledWeight
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class MixMatchSettings(UnlabeledWeight):
    """As `UnlabeledWeight`, and three more; `strong` does nothing: there are no such views.

    Attributes:
        temperature: of the sharpening (published: 0.5).
        beta: both parameters of the distribution that mixing weights are drawn from (published: 0.75).
        ramp_steps: in which the weight grows, linearly.
    """

    temperature: Annotated[float, Range(0.01, 10.0)]
    beta: Annotated[float, Range(0.01, 10.0)]
    ramp_steps: Annotated[int, Range(0)]
