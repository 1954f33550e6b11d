"""Labels to look at again: those that held-out predictions and the nearest labeled patches contradict.

Held-out predictions show likely label errors (Northcutt, Jiang & Chuang 2021, "Confident learning"). They are of models
without the label's patient. Neighbors may be of this patient, whose tissue is the most alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.stage_csv import read_stage_csv
from histo_monai.utils.process.products import product

NUM_NEIGHBORS = 10
_BLOCK = 4096
"""Rows whose similarities are in memory together."""
NUM_SHOWN = 3
"""Neighbors that a table names."""
_ANY, _CLASSES, _SCORES = (
    {"rank": "int64", "patch_id": "str", "slide_id": "str", "patient_id": "str", "doubt": "float64"},
    {
        "label": "str",
        "other_label": "str",
        "label_probability": "float64",
        "other_probability": "float64",
        "neighbors_of_label": "float64",
        "neighbors_of_other": "float64",
    },
    {"score": "float64", "predicted_score": "float64", "neighbors_score": "float64"},
)
NEIGHBORS = [f"neighbor_{number}" for number in range(1, NUM_SHOWN + 1)]
"""Columns of a table that name them, nearest first; empty where unknown."""


@dataclass(frozen=True)
class Doubts:
    """Doubt in each label of a table, Shape (n,) each.

    Attributes:
        doubt: of classes: largest probability of another class, minus the label's, plus the fraction of the neighbors
            with another label; -1 to 2. Of scores: absolute differences from prediction and neighbors' mean, summed.
        other: number of the other class with the largest sum of probability and fraction of the neighbors; of scores,
            the mean of prediction and neighbors.
    """

    doubt: NDArray[np.float64]
    other: NDArray

    @property
    def order(self) -> NDArray[np.intp]:
        """Rows, the largest doubt first."""
        return np.argsort(-self.doubt, kind="stable")

    @classmethod
    def of_classes(
        cls, probabilities: NDArray, targets: NDArray[np.int64], neighbors: NDArray[np.intp] | None
    ) -> Self:
        """Doubt in class labels.

        Args:
            probabilities: held-out, Shape (n, K).
            targets: class numbers, Shape (n,).
            neighbors: rows of the nearest labels of each, Shape (n, k); None: probabilities alone.
        """
        rows, support = np.arange(len(targets)), np.array(probabilities, np.float64)
        label = support[rows, targets]
        support[rows, targets] = -np.inf
        doubt = support.max(axis=1) - label
        if neighbors is not None:
            votes = (targets[neighbors][:, :, None] == np.arange(support.shape[1])).mean(axis=1)
            doubt += 1 - votes[rows, targets]
            support += votes
        return cls(doubt, support.argmax(axis=1))

    @classmethod
    def of_scores(cls, predictions: NDArray, scores: NDArray, neighbors: NDArray[np.intp] | None) -> Self:
        """Doubt in scores.

        Args:
            predictions: held-out, Shape (n,).
            scores: Shape (n,).
            neighbors: see `of_classes`.
        """
        expected = np.asarray(predictions, np.float64)[:, None]
        if neighbors is not None:
            expected = np.stack([expected[:, 0], scores[neighbors].mean(axis=1)], axis=1)
        return cls(np.abs(expected - scores[:, None]).sum(axis=1), expected.mean(axis=1))


def nearest_rows(features: NDArray, num: int = NUM_NEIGHBORS) -> NDArray[np.intp]:
    """The nearest other rows of each row by cosine, nearest first; Shape (n, min(num, n - 1)).

    Args:
        features: standardized, Shape (n, D).
        num: number of neighbors.
    """
    rows = np.asarray(features, np.float32)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    num = min(num, len(rows) - 1)
    nearest = np.empty((len(rows), num), np.intp)
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, min(start + _BLOCK, len(rows)))
        cosines = product(rows[block], rows.T)
        cosines[np.arange(len(cosines)), np.arange(block.start, block.stop)] = -np.inf
        some = np.argpartition(-cosines, num - 1, axis=1)[:, :num] if num else nearest[block]
        order = np.argsort(-np.take_along_axis(cosines, some, axis=1), axis=1, kind="stable")
        nearest[block] = np.take_along_axis(some, order, axis=1)
    return nearest


def doubtful_table(
    labeled: pd.DataFrame,
    predictions: NDArray,
    classes: Sequence[str] | None,
    neighbors: NDArray[np.intp] | None,
) -> pd.DataFrame:
    """All labels, the most doubtful first.

    Args:
        labeled: rows with a label or a score.
        predictions: of models without the row's patient: probabilities, Shape (n, K), or scores, Shape (n, 1).
        classes: names of the K classes; None for scores.
        neighbors: of each row (`nearest_rows`); None: unknown, their columns are empty.
    """
    rows = np.arange(len(labeled))
    if classes is None:
        scores = labeled["score"].to_numpy(np.float64)
        doubts = Doubts.of_scores(predictions[:, 0], scores, neighbors)
        columns = {
            "score": scores,
            "predicted_score": predictions[:, 0],
            "neighbors_score": np.nan if neighbors is None else scores[neighbors].mean(axis=1),
        }
    else:
        targets = pd.Index(classes).get_indexer(pd.Index(labeled["label"])).astype(np.int64)
        doubts = Doubts.of_classes(predictions, targets, neighbors)

        def fraction(numbers: NDArray) -> NDArray | float:
            return np.nan if neighbors is None else (targets[neighbors] == numbers[:, None]).mean(axis=1)

        columns = {
            "label": labeled["label"].to_numpy(object),
            "other_label": np.array(classes, object)[doubts.other],
            "label_probability": predictions[rows, targets],
            "other_probability": predictions[rows, doubts.other],
            "neighbors_of_label": fraction(targets),
            "neighbors_of_other": fraction(doubts.other),
        }
    table = labeled[["patch_id", "slide_id", "patient_id"]].assign(doubt=doubts.doubt, **columns)
    ids = labeled["patch_id"].to_numpy(object)
    for number, name in enumerate(NEIGHBORS):
        if neighbors is None or number >= neighbors.shape[1]:
            table[name] = ""
        else:
            table[name] = ids[neighbors[:, number]]
    table = table.iloc[doubts.order].reset_index(drop=True)
    table.insert(0, "rank", rows + 1)
    return table


def read_doubtful(path: Path, has_scores: bool) -> pd.DataFrame:
    """Read a `doubtful_table` that `finetune` wrote.

    Raises:
        InputError: the file is missing or is no such table.
    """
    types = _ANY | (_SCORES if has_scores else _CLASSES) | dict.fromkeys(NEIGHBORS, "str")
    return read_stage_csv(path, types, stage="finetune", key=["patch_id"])
