"""Weights between a model and the one that it was trained from, and which candidate of a training is selected.

Weights on the line between a model and one that was trained from it predict as an average of both does, or better
(Wortsman et al. 2022). A training gains where its start is poor, and may lose where the start is good; held-out labels
decide, of classes by accuracy first: a network that learned from few labels is too sure of its errors, and its loss
would favor the start. The start is a candidate, so a training that harms changes nothing.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

Measures = dict[str, float]
"""Means over held-out patches, by name."""
Candidates = Mapping[float, Measures]
"""What a training offers: an epoch, or a weight of the start on the line, each with its measures."""
Rank = Callable[[Measures], tuple[float, ...]]
"""Measures -> what is lowest for the candidate to select."""


class Interpolation:
    """Points on the line from the weights that a training ended with to those that it started from.

    Args:
        model: as trained; changed by `move`.
        start: the model that the training started from, as it was; of the same architecture.
        finish: called at every point but the start: batch statistics and class proportions anew.
    """

    def __init__(self, model: nn.Module, start: nn.Module, finish: Callable[[], None]) -> None:
        self._model, self._start, self._finish = model, start, finish
        self._last = copy.deepcopy(model.state_dict())
        self._at: float | None = None

    @property
    def start_weight(self) -> float:
        """The point that the model is at.

        Raises:
            ValueError: it was never moved.
        """
        if self._at is None:
            raise ValueError("the model was not moved to any point")
        return self._at

    def move(self, start_weight: float) -> None:
        """Leave the point with this weight of the start in the model; at 1 it is the start, unchanged."""
        if start_weight == self._at:
            return
        self._at = start_weight
        self._model.load_state_dict(self._start.state_dict() if start_weight == 1 else self._last)
        if start_weight < 1:
            interpolate(self._model, self._start, start_weight)
            self._finish()

    def select(
        self, start_weights: Sequence[float], measure: Callable[[], Measures], rank: Rank
    ) -> dict[float, Measures]:
        """Leave the point of the lowest rank in the model, of equal ones the first.

        Args:
            start_weights: 0..1, each a point to try, at least one.
            measure: called at every point: means over held-out patches.

        Returns:
            What was measured at each point.
        """
        measured = {}
        for weight in start_weights:
            self.move(weight)
            measured[weight] = measure()
        self.move(lowest(measured, rank))
        return measured


@torch.no_grad()
def interpolate(model: nn.Module, start: nn.Module, start_weight: float) -> None:
    """Move a model's weights towards another's; the statistics of its batch-norms stay its own.

    Args:
        model: changed.
        start: of the same architecture.
        start_weight: of its weights, 0..1.
    """
    for own, theirs in zip(model.parameters(), start.parameters(), strict=True):
        own.lerp_(theirs.to(own), start_weight)


def lowest(candidates: Candidates, rank: Rank) -> float:
    """The candidate of the lowest rank, of equal ones the first; one with a NaN comes last.

    Args:
        candidates: at least one.
    """

    def key(candidate: float) -> tuple[float, ...]:
        numbers = rank(candidates[candidate])
        return (math.inf,) if any(map(math.isnan, numbers)) else numbers

    return min(candidates, key=key)


def pooled(folds: Sequence[tuple[Candidates, int]]) -> dict[float, Measures]:
    """Means over all folds of a cross-validation, each held-out patch counting once.

    Args:
        folds: of each fold its candidates, the same in all, and the number of its held-out patches.
    """
    (first, _), *_ = folds
    total = sum(num for _, num in folds)
    return {
        candidate: {
            name: sum(candidates[candidate][name] * num for candidates, num in folds) / total
            for name in measures
        }
        for candidate, measures in first.items()
    }
