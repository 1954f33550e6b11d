"""The selected model: a calibrated mixture of heads that predicts arrays and becomes one torch module."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from histo_monai.finetuning.heads import HEADS
from histo_monai.finetuning.heads.features import Depths, Standardization
from histo_monai.finetuning.heads.protocol import HeadModel
from histo_monai.models.heads.mixture import MixedHead, Mixture

UNKNOWN = 1e-3
"""Probability of a class without a label, before all probabilities are normalized."""


@dataclass(frozen=True)
class Candidate:
    """A head, one of its settings, and the depth of its features."""

    head: str
    setting: Any
    depth: str

    def as_dict(self) -> dict[str, Any]:
        """Content for JSON."""
        return {"head": self.head, "setting": self.setting, "depth": self.depth}


@dataclass(frozen=True)
class Part:
    """A fitted candidate of a mixture, its calibration and its weight."""

    candidate: Candidate
    standardization: Standardization
    model: HeadModel
    temperature: float
    weight: float


@dataclass(frozen=True)
class SelectedHead:
    """The selected mixture of heads, fitted to all labels.

    Attributes:
        parts: weighted heads; their weights sum to 1.
        known: numbers of the classes with a label; None for scores.
        num_classes: K; None for scores.
        losses: cross-validated loss of each compared candidate; empty without a comparison.
        why_default: reason for the default head without a comparison, one line; empty after a comparison.
    """

    parts: tuple[Part, ...]
    known: NDArray[np.int64] | None
    num_classes: int | None
    losses: dict[Candidate, float]
    why_default: str = ""

    @property
    def depths(self) -> tuple[str, ...]:
        """Names of the depths that the parts read, in the order of their columns."""
        return tuple(sorted({name for part in self.parts for name in part.standardization.names}))

    def narrowed(self) -> SelectedHead:
        """This head, whose module reads the features of `depths` alone, side by side."""
        read = np.unique(np.concatenate([part.standardization.columns for part in self.parts]))

        def moved(part: Part) -> Part:
            made = part.standardization
            return replace(part, standardization=replace(made, columns=np.searchsorted(read, made.columns)))

        return replace(self, parts=tuple(map(moved, self.parts)))

    def predict(self, features: Depths) -> NDArray[np.float64]:
        """Probabilities, Shape (n, K), or scores 0..1, Shape (n, 1)."""
        total: Any = 0.0
        for part in self.parts:
            outputs = part.model.outputs(part.standardization.of(features))
            if self.num_classes is not None:
                outputs = softmax(outputs / part.temperature, axis=1)
            total = total + part.weight * outputs
        if self.num_classes is None or self.known is None:
            return np.asarray(np.clip(total, 0.0, 1.0))
        every = np.full((len(total), self.num_classes), UNKNOWN)
        every[:, self.known] = total
        return np.asarray(every / every.sum(axis=1, keepdims=True))

    def module(self) -> Mixture:
        """Torch module, float32: features of all depths side by side, sorted by name -> logits or scores.

        The softmax of the logits equals `predict`.
        """
        parts = [
            MixedHead(
                part.standardization.columns,
                part.standardization.mean,
                part.standardization.factor,
                part.model.module(),
                part.temperature,
                part.weight,
            )
            for part in self.parts
        ]
        return Mixture(parts, self.known, self.num_classes, UNKNOWN)

    def fitted_again(self, features: Depths, targets: NDArray, weights: NDArray) -> SelectedHead:
        """The mixture fitted to other rows, with unchanged settings, temperatures and weights.

        Args:
            features: every depth, Shape (n, D_k).
            targets: class numbers, exactly those in `known`; or scores. Shape (n,).
            weights: weight of each row, above 0, Shape (n,).
        """
        num_known = None
        if self.known is not None:
            targets, num_known = np.searchsorted(self.known, targets), len(self.known)

        def fitted(part: Part) -> Part:
            rows = part.standardization.of(features)
            candidate = part.candidate
            model = HEADS[candidate.head].fit(rows, targets, num_known, weights, [candidate.setting])[0]
            return replace(part, model=model)

        return replace(self, parts=tuple(map(fitted, self.parts)))

    def as_dict(self) -> dict[str, Any]:
        """Content for JSON."""
        return {
            "parts": [
                {**part.candidate.as_dict(), "temperature": part.temperature, "weight": part.weight}
                for part in self.parts
            ],
            "losses": [{**candidate.as_dict(), "loss": loss} for candidate, loss in self.losses.items()],
            "why_default": self.why_default,
        }
