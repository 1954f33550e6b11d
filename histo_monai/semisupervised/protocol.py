"""What a semi-supervised method is to the engine. A new method is one file and one line in `METHODS`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import nn

from histo_monai.models.task_model import TaskModel
from histo_monai.training.schedule import Schedule
from histo_monai.utils.randomness import Step

GUESSES = "guesses"
"""Last of the `measures` of a method that guesses: what the loss takes each unlabeled patch to be, (n,),
class numbers or scores 0..1. It is held against labels that are known and not given; nothing is learned from that."""


@dataclass(frozen=True)
class Batch:
    """What a step is given, on the device of the network.

    Attributes:
        labeled: pixels, shape (B, 1, 3, H, H), uint8.
        targets: of the labeled patches, shape (B,): class numbers int64, or scores float32.
        unlabeled: pixels, shape (mu B, 1, 3, H, H), uint8; their labels are nobody's business.
        step: all chance is a function of it: several processes that train do the same step side by side, on the whole
            batch, and only encoders (`models.encoder.Encoder`) share its rows, see `models.shared_rows`.
        guesses: where the method asks for them, what the model that it starts from says of each unlabeled patch and of
            its neighbors, see `semisupervised.teaching.neighbors`, shape (mu B, K): probabilities of classes, or
            scores.
    """

    labeled: torch.Tensor
    targets: torch.Tensor
    unlabeled: torch.Tensor
    step: Step
    guesses: torch.Tensor | None = None


class SemiSupervised(Protocol):
    """A method that learns from labeled and unlabeled patches, classes and scores alike.

    Built with keyword arguments: `model` (where it starts), `objective` (what the labels ask for), `patch_px`, `mpp`
    (µm/px of the views, None where unknown), `n_aug` (operations of the paper's strong view), `recipe`
    (`settings.StudentRecipe`; where settings are not `by_recipe`, the section of the dataset) and `settings`,
    an instance of `Settings`. A step is: `views`, then `outputs` in the engine's precision, then `measure`, whose mean
    "loss" is minimized, then `after_step`. One that asks for neighbors has `chances(guesses)`, too: with what
    probability each unlabeled patch is drawn, shape (N,), by the guesses of all of them, (N, K).

    Attributes:
        Settings: frozen dataclass below `settings.MethodSettings` of what params can set of it, annotated by the rules
            of `histo_monai.utils.settings.rules`.
        measures: what `measure` gives, "loss" first.
        network: everything that trains, and what follows it (buffers, slow copies); its state is what a killed run
            goes on from. The engine moves it to the device and puts it into training mode before each step.
        model: patches -> outputs; holds the weights that predict: validated after each epoch, and kept at the end.
    """

    Settings: ClassVar[type]
    measures: tuple[str, ...]

    @property
    def network(self) -> nn.Module:
        """See the class."""

    @property
    def model(self) -> TaskModel:
        """See the class."""

    def optimizer(self, schedule: Schedule) -> torch.optim.Optimizer:
        """Over what trains, each part at its rate."""

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """What the network is shown, each of shape (n, 3, P, P), float32, 0..1."""

    def outputs(self, views: tuple[torch.Tensor, ...]) -> Any:
        """Outputs of the network for the views, with gradients where something trains."""

    def measure(self, outputs: Any, batch: Batch) -> dict[str, torch.Tensor]:
        """`measures`, each of shape (n,); "loss" alone has a gradient."""

    def after_step(self) -> None:
        """Called after each step of the optimizer."""

    def after_epoch(self) -> None:
        """Called at the end of an epoch, before its validation."""

    def pairs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """For a picture: weak and strong views of the unlabeled patches, and the predictions of each.

        Returns:
            Two arrays (n, 3, P, P), float32, 0..1, and two of predictions (n, K).
        """
