"""How long and how fast a training with labels goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Attributes:
        epochs: how many.
        optimizer: "sgd" (Nesterov momentum 0.9) or "adam" (betas 0.9, 0.999).
        lr: learning rate at the start.
        weight_decay: L2.
        milestones: epochs after which the learning rate falls to a tenth.
    """

    epochs: int
    optimizer: str
    lr: float
    weight_decay: float
    milestones: Sequence[int]

    def build_optimizer(
        self, parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]]
    ) -> torch.optim.Optimizer:
        """The optimizer over parameters, or over groups of them with rates of their own.

        Raises:
            ValueError: its name is unknown.
        """
        if self.optimizer == "sgd":
            return torch.optim.SGD(
                parameters, lr=self.lr, momentum=0.9, nesterov=True, weight_decay=self.weight_decay
            )
        if self.optimizer == "adam":
            return torch.optim.Adam(
                parameters, lr=self.lr, betas=(0.9, 0.999), weight_decay=self.weight_decay
            )
        raise ValueError(f"optimizer is {self.optimizer!r}; expected sgd or adam")
