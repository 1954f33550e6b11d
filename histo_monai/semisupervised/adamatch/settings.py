"""What params can set of AdaMatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.semisupervised.students.settings import UnlabeledWeight
from histo_monai.settings.rules import Range


@dataclass(frozen=True)
class AdaMatchSettings(UnlabeledWeight):
    """As `UnlabeledWeight`; `threshold`: in parts of the mean confidence of the labeled views (published: 0.9)."""

    threshold: Annotated[float, Range(0.0, 1.0)]
