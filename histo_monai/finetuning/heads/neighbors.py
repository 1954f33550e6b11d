"""k nearest neighbors by cosine: votes of equally weighted classes, or mean score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from histo_monai.finetuning.class_means import unit
from histo_monai.finetuning.heads.rows import balanced
from histo_monai.finetuning.heads.settings import NeighborsSettings
from histo_monai.models.heads import mixture
from histo_monai.utils.process.products import product


@dataclass(frozen=True)
class NeighborsModel:
    """Votes of the nearest labeled rows.

    Attributes:
        rows: unit length, Shape (m, D).
        votes: class votes, Shape (m, K); for scores, weighted score and weight, Shape (m, 2).
        num_neighbors: k.
        smoothing: added to the votes of each class; None for scores.
    """

    rows: NDArray[np.float64]
    votes: NDArray[np.float64]
    num_neighbors: int
    smoothing: float | None

    def outputs(self, rows: NDArray) -> NDArray[np.float64]:
        """Logits, Shape (n, K), or scores, Shape (n, 1), of standardized features, Shape (n, D)."""
        cosines = product(unit(rows), self.rows.T)
        nearest = np.argpartition(-cosines, self.num_neighbors - 1, axis=1)[:, : self.num_neighbors]
        votes = self.votes[nearest].sum(axis=1)
        if self.smoothing is None:
            return np.asarray(votes[:, :1] / votes[:, 1:])
        return np.asarray(np.log(votes + self.smoothing))

    def module(self) -> mixture.Neighbors:
        """Equal function as a torch module, float32."""
        return mixture.Neighbors(self.rows, self.votes, self.num_neighbors, self.smoothing)


class Neighbors:
    """k nearest neighbors; k is at most the number of rows. The module holds the labeled rows."""

    Settings: ClassVar = NeighborsSettings
    learns: ClassVar[tuple[str, ...]] = ("classes", "scores")

    @staticmethod
    def fit(
        rows: NDArray, targets: NDArray, num_classes: int | None, weights: NDArray, grid: Sequence[int]
    ) -> list[NeighborsModel]:
        """Fitted models (`protocol.Head.fit`); a setting is k."""
        points = unit(rows)
        if num_classes is None:
            votes, smoothing = np.stack([targets * weights, weights], axis=1), None
        else:
            votes = np.eye(num_classes)[targets] * balanced(targets, weights / weights.mean())[:, None]
            smoothing = 1 / num_classes
        return [NeighborsModel(points, votes, min(number, len(points)), smoothing) for number in grid]
