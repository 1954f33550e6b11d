"""Which slides each corpus offers for pretraining. A new corpus is one function and one line here."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from histo_monai.datasets.breastpathq import reader as breastpathq
from histo_monai.datasets.camelyon16 import reader as camelyon16
from histo_monai.datasets.own import reader as own

CORPORA: dict[str, Callable[..., pd.DataFrame]] = {
    "breastpathq": breastpathq.pretraining_slides,
    "camelyon16": camelyon16.pretraining_slides,
    "own": own.pretraining_slides,
}
"""Name -> function of the corpus's folder (and of what is particular to it) that returns `tables.CORPUS_COLUMNS`."""
