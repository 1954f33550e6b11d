"""Interpolation between a trained model and its start, and selection of a training's candidate.

Interpolated weights predict as an average of both models, or better (Wortsman et al. 2022). Training improves a poor
start and may harm a good one; held-out labels select. Classes are ranked by accuracy first: a network trained on few
labels is overconfident, and its loss would favor the start. The start is a candidate, so a harmful training has no
effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

Measures = dict[str, float]
"""Means over held-out patches, by name."""
Candidates = Mapping[float, Measures]
"""Epoch, or interpolation weight of the start -> measures."""
Rank = Callable[[Measures], tuple[float, ...]]
"""Measures -> rank of a candidate; lowest is best."""


class Interpolation:
    """Weights between a trained model and its start.

    Args:
        model: as trained; changed by `move`.
        start: the model before training, of equal architecture. Tensors in the same memory stay and are not copied.
        finish: called at every point but the start, to renew batch statistics and class proportions.
    """

    def __init__(self, model: nn.Module, start: nn.Module, finish: Callable[[], None]) -> None:
        self._model, self._start, self._finish = model, start, finish
        before = start.state_dict()
        state = {
            name: tensor for name, tensor in model.state_dict().items() if not _same(tensor, before[name])
        }
        self._last = {name: tensor.clone() for name, tensor in state.items()}
        self._at: float | None = None

    @property
    def start_weight(self) -> float:
        """Present interpolation weight of the start.

        Raises:
            ValueError: the model was never moved.
        """
        if self._at is None:
            raise ValueError("the model was not moved to any point")
        return self._at

    def move(self, start_weight: float) -> None:
        """Set the model to an interpolation weight of the start; 1 is the unchanged start."""
        if start_weight == self._at:
            return
        self._at = start_weight
        state = self._start.state_dict() if start_weight == 1 else self._last
        for name, tensor in self._model.state_dict().items():
            if name in self._last:
                tensor.copy_(state[name])
        if start_weight < 1:
            interpolate(self._model, self._start, start_weight)
            self._finish()

    def select(
        self, start_weights: Sequence[float], measure: Callable[[], Measures], rank: Rank
    ) -> dict[float, Measures]:
        """Move the model to the weight of the lowest rank, of equal ranks the first.

        Args:
            start_weights: 0..1, at least one.
            measure: called at every weight: means over held-out patches.

        Returns:
            Measures at each weight.
        """
        measured = {}
        for weight in start_weights:
            self.move(weight)
            measured[weight] = measure()
        self.move(lowest(measured, rank))
        return measured


@torch.no_grad()
def interpolate(model: nn.Module, start: nn.Module, start_weight: float) -> None:
    """Move a model's weights towards another's; batch-norm statistics stay.

    Args:
        model: changed.
        start: of equal architecture.
        start_weight: weight of `start`, 0..1.
    """
    for own, theirs in zip(model.parameters(), start.parameters(), strict=True):
        if not _same(own, theirs):
            own.lerp_(theirs.to(own), start_weight)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors share their memory."""
    return one.data_ptr() == other.data_ptr() and one.device == other.device


def lowest(candidates: Candidates, rank: Rank) -> float:
    """Candidate of the lowest rank, of equal ranks the first; ranks with NaN come last."""

    def key(candidate: float) -> tuple[float, ...]:
        numbers = rank(candidates[candidate])
        return (math.inf,) if any(map(math.isnan, numbers)) else numbers

    return min(candidates, key=key)


def pooled(folds: Sequence[tuple[Candidates, int]]) -> dict[float, Measures]:
    """Means over all folds of a cross-validation, weighted by held-out patches.

    Args:
        folds: candidates, equal in all folds, and number of held-out patches.
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
