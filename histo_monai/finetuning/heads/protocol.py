"""What a head is: rows of features and targets -> a model that predicts, and becomes a layer of a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray
from torch import nn

from histo_monai.finetuning.heads.settings import HeadSettings


class HeadModel(Protocol):
    """A head that has learned."""

    def outputs(self, rows: NDArray) -> NDArray:
        """Standardized features, Shape (n, D) -> logits, Shape (n, K), or scores, Shape (n, 1); float64."""

    def module(self) -> nn.Module:
        """The same function in torch, float32: (n, D) -> (n, K) or (n, 1). Its state is in buffers."""


class Head(Protocol):
    """A kind of head.

    Attributes:
        Settings: of the head.
        learns: "classes", "scores" or both.
    """

    Settings: ClassVar[type[HeadSettings]]
    learns: ClassVar[tuple[str, ...]]

    @staticmethod
    def fit(
        rows: NDArray, targets: NDArray, num_classes: int | None, weights: NDArray, grid: Sequence[Any]
    ) -> list[HeadModel]:
        """Learn with every setting of a grid; settings share what they can.

        Args:
            rows: standardized features, float64, Shape (n, D).
            targets: classes by number, int64, each of 0..K - 1 with a row at least; or scores, float64. Shape (n,).
            num_classes: K, 2 at least; None for scores.
            weights: how much each row counts, above 0, Shape (n,).
            grid: settings, see `HeadSettings.grid`.
        """
