"""Report section on doubtful labels: pictures beside their nearest labeled patches, and a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.evaluation.conformal import SHOWN
from histo_monai.reports.site.blocks import (
    Block,
    Cell,
    Lines,
    Picture,
    Pictures,
    Section,
    Table,
    missing,
    number,
)

NUM_PICTURES, NUM_ROWS = 12, 50
_GAP_PX = 4
_COLUMNS = {
    "slide_id": "slide",
    "patch_id": "patch",
    "label": "label",
    "score": "score",
    "other_label": "likelier",
    "label_probability": "probability of label",
    "other_probability": "of the other",
    "neighbors_of_label": "neighbors of label",
    "neighbors_of_other": "of the other",
    "predicted_score": "predicted",
    "neighbors_score": "mean of neighbors",
    "doubt": "doubt",
}
_ABSTENTION = {"coverage": "labels in the set", "answered": "single answers", "accuracy": "their accuracy"}
_TEXTS = ("slide_id", "patch_id", "label", "other_label")


def doubtful_section(
    table: pd.DataFrame | None, pictures: Sequence[Picture], calibrated: Mapping[str, Any] | None = None
) -> Section:
    """Section on the labels that held-out predictions and neighbors contradict most.

    Args:
        table: of `evaluation.doubtful`; None without cross-validation.
        pictures: `strip` of the first labels.
        calibrated: of `evaluation.conformal`; None for scores.
    """
    title = "Doubtful labels"
    if table is None:
        return Section("doubtful", title, [missing("No list", "the labels could not be cross-validated")])
    words = (
        "Look at these labels again: models without the patient, and the nearest labeled patches, contradict them "
        "most. A label on this list may be right."
    )
    how = (
        "To correct labels of slides, run `histo-monai suggest --doubtful` and label its squares; correct labels of "
        "image files and scores in your table."
    )
    note = "Left: the patch. Right of it: its nearest labeled patches, from near to far."
    blocks: list[Block] = [Lines([words, how])]
    if pictures:
        blocks.append(Pictures("The most doubtful labels", pictures, note, large=True))
    columns = [name for name in _COLUMNS if name in table]
    rows = []
    for row in table[:NUM_ROWS].to_dict("records"):
        cells = [Cell(str(row[name]) or "—") if name in _TEXTS else number(row[name]) for name in columns]
        rows.append([Cell(str(row["rank"]), float(row["rank"])), *cells])
    head = ["rank", *(_COLUMNS[name] for name in columns)]
    blocks.append(Table(f"First {len(rows)} of {len(table)} labels", head, rows, folded=True))
    if calibrated:
        blocks.append(_abstention(calibrated))
    return Section("doubtful", title, blocks)


def _abstention(calibrated: Mapping[str, Any]) -> Table:
    """Coverage and single answers on the labels of left-out patients."""
    rows = [
        [
            Cell(f"{row['rate']:g}", row["rate"]),
            *(number(math.nan if row[name] is None else row[name]) for name in _ABSTENTION),
        ]
        for row in calibrated["rates"]
        if row["rate"] in SHOWN
    ]
    title = f"Abstention: {calibrated['num_labels']} labels of {calibrated['num_patients']} patients"
    note = f"Of left-out patients. Accuracy of all answers: {calibrated['accuracy']:.3f}."
    return Table(title, ["error rate", *_ABSTENTION.values()], rows, note)


def caption(row: Mapping[Any, Any], labels: Sequence[str]) -> str:
    """Label, and what contradicts it.

    Args:
        row: of the table.
        labels: labels or scores of the nearest patches shown.
    """
    near = ", ".join(labels)
    if "score" in row:
        return f"{row['rank']}. score {row['score']:.2f}, predicted {row['predicted_score']:.2f}; nearest: {near}"
    probabilities = (
        f"probability {row['label_probability']:.2f}, {row['other_label']} {row['other_probability']:.2f}"
    )
    return f"{row['rank']}. {row['label']}: {probabilities}; nearest: {near or 'unknown'}"


def strip(patches: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Patches, Shape (n, 3, P, P), side by side on white; (P, W, 3)."""
    side = patches.shape[-1]
    gap = np.full((side, _GAP_PX, 3), 255, np.uint8)
    parts = [part for patch in patches for part in (patch.transpose(1, 2, 0), gap)]
    return np.concatenate(parts[:-1], axis=1)


def path_of(number: int) -> Path:
    """Path of a strip, relative to the page."""
    return Path("doubtful", f"{number}.png")
