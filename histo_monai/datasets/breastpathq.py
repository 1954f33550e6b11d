"""BreastPathQ: the official tree, read as published (Petrick et al. 2021; TCIA collection Post-NAT-BRCA)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from histo_monai.datasets.tables import corpus_table


def pretraining_slides(root: Path) -> pd.DataFrame:
    """Every `*.svs` slide under `root`, in whichever sub-folder the download left it.

    The patient is the part of the file's name before the first underscore or blank: the collection numbers its slides
    per patient.

    Returns:
        See `tables.CORPUS_COLUMNS`.

    Raises:
        ValueError: no slide is found, or two have the same name.
    """
    paths = sorted(path for path in root.rglob("*") if path.suffix.lower() == ".svs")
    if not paths:
        raise ValueError(f"{root}: no *.svs slide below this folder; put the slides of Post-NAT-BRCA here")
    rows = [
        {"slide_id": path.stem, "path": path, "patient_id": path.stem.replace(" ", "_").split("_")[0]}
        for path in paths
    ]
    return corpus_table(rows)
