"""Length, optimizer and learning rates of a training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from histo_monai.utils.settings.recipe import warmup_cosine


class Rates(Protocol):
    """Learning rates of the steps of a training."""

    def rate(self, *, epoch: int, step: int, num_steps: int) -> float:
        """Learning rate of a step, relative to the highest; a function without state.

        Args:
            epoch: from 1.
            step: within all epochs, from 1.
        """


@dataclass(frozen=True)
class Schedule:
    """Length, optimizer and learning rates of a training with labels.

    Attributes:
        epochs: 0: no training.
        optimizer: "sgd" (Nesterov momentum 0.9), "adam" or "adamw" (betas 0.9, 0.999).
        lr: highest learning rate.
        weight_decay: L2; "adamw": decoupled from the gradient.
        milestones: epochs after which the learning rate falls to a tenth.
        warmup: fraction of all steps with a linear rise of the rate, before a cosine fall; None: neither.
        steps_per_epoch: of the optimizer; None: one pass over the images.
    """

    epochs: int
    optimizer: str
    lr: float
    weight_decay: float
    milestones: Sequence[int] = ()
    warmup: float | None = None
    steps_per_epoch: int | None = None

    def build_optimizer(
        self, parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]]
    ) -> torch.optim.Optimizer:
        """Optimizer over parameters, or over parameter groups with learning rates of their own.

        Raises:
            ValueError: its name is unknown.
        """
        if self.optimizer == "sgd":
            return torch.optim.SGD(
                parameters, lr=self.lr, momentum=0.9, nesterov=True, weight_decay=self.weight_decay
            )
        if self.optimizer in ("adam", "adamw"):
            kind = torch.optim.Adam if self.optimizer == "adam" else torch.optim.AdamW
            return kind(parameters, lr=self.lr, betas=(0.9, 0.999), weight_decay=self.weight_decay)
        raise ValueError(f"optimizer is {self.optimizer!r}; expected sgd, adam or adamw")

    def optimizer_for(
        self, network: nn.Module, backbone: nn.Module, backbone_lr_factor: float
    ) -> torch.optim.Optimizer:
        """Optimizer over the parameters that train, with a learning rate of its own for the backbone."""
        backbone_lr = self.lr * backbone_lr_factor
        return self.build_optimizer(parameter_groups(network, backbone, lr=self.lr, backbone_lr=backbone_lr))

    def rate(self, *, epoch: int, step: int, num_steps: int) -> float:
        """Learning rate of a step, relative to the highest; a function without state (`Rates`)."""
        rate = 0.1 ** sum(epoch > milestone for milestone in self.milestones)
        return rate * warmup_cosine(self.warmup, step=step, num_steps=num_steps)


def parameter_groups(
    network: nn.Module, backbone: nn.Module, *, lr: float, backbone_lr: float
) -> list[dict[str, Any]]:
    """Groups of the parameters that train: new layers and backbone with their learning rates; one for equal rates.

    Args:
        network: holds the backbone, or only its parameters.
        lr: of the parameters outside the backbone.
    """
    trained = [part for part in network.parameters() if part.requires_grad]
    if backbone_lr == lr:
        return [{"params": trained, "lr": lr}]
    given = set(backbone.parameters())
    return [
        {"params": [part for part in trained if part not in given], "lr": lr},
        {"params": [part for part in trained if part in given], "lr": backbone_lr},
    ]
