"""What params can set of the mean teacher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.semisupervised.students.settings import UnlabeledWeight
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class MeanTeacherSettings(UnlabeledWeight):
    """As `UnlabeledWeight`; `ramp_steps`: in which the weight grows, as exp(-5 (1 - t)^2) (Laine & Aila 2017)."""

    ramp_steps: Annotated[int, Range(0)]
