"""Which slides each corpus offers for pretraining. A new corpus is one function and one line here."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from histo_monai.datasets import breastpathq, camelyon16, own

CORPORA: dict[str, Callable[..., pd.DataFrame]] = {
    "breastpathq": breastpathq.pretraining_slides,
    "camelyon16": camelyon16.pretraining_slides,
    "own": own.pretraining_slides,
}
"""Name -> function of the corpus's folder (and of what is particular to it) that returns `tables.CORPUS_COLUMNS`."""
