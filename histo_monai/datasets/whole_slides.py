"""Which slides of each dataset are mapped and diagnosed. A new dataset is one function and one line here."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from histo_monai.datasets.camelyon16 import reader as camelyon16
from histo_monai.datasets.own import reader as own
from histo_monai.tables.columns import whole_slide_table

WHOLE_SLIDES: dict[str, Callable[..., tuple[pd.DataFrame, list[str]]]] = {
    "camelyon16": camelyon16.whole_slides,
    "own": own.whole_slides,
}
"""Name -> function of the dataset's folder and of what is particular to it: `tables.WHOLE_SLIDE_COLUMNS`, warnings."""


def corpus_slides(slides: pd.DataFrame) -> pd.DataFrame:
    """The slides of a corpus (`tables.SLIDE_COLUMNS`) as slides to map: BreastPathQ's, which bear no label."""
    kept = ["slide_id", "path", "patient_id", "mpp", "split"]
    return whole_slide_table(slides[kept].to_dict("records"))  # type: ignore[arg-type]  # names are texts
