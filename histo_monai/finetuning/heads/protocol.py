"""Interface of heads: fit to rows of features and targets; predict, or become a layer of a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray
from torch import nn

from histo_monai.finetuning.heads.settings import HeadSettings


class HeadModel(Protocol):
    """A fitted head."""

    def outputs(self, rows: NDArray) -> NDArray:
        """Logits, Shape (n, K), or scores, Shape (n, 1), of standardized features, Shape (n, D); float64."""

    def module(self) -> nn.Module:
        """Equal function as a torch module, float32: (n, D) -> (n, K) or (n, 1); its state is in buffers."""


class Head(Protocol):
    """A kind of head.

    Attributes:
        Settings: settings class of the head.
        learns: "classes", "scores" or both.
    """

    Settings: ClassVar[type[HeadSettings]]
    learns: ClassVar[tuple[str, ...]]

    @staticmethod
    def fit(
        rows: NDArray, targets: NDArray, num_classes: int | None, weights: NDArray, grid: Sequence[Any]
    ) -> list[HeadModel]:
        """Fitted models, one per setting of a grid; common computations run once.

        Args:
            rows: standardized features, float64, Shape (n, D).
            targets: class numbers, int64, at least one row for each of 0..K - 1; or scores, float64. Shape (n,).
            num_classes: K, at least 2; None for scores.
            weights: weight of each row, above 0, Shape (n,).
            grid: settings from `HeadSettings.grid`.
        """
