"""Interface between semi-supervised methods and their engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import nn

from histo_monai.finetuning.heads.unlabeled.self_training import HeadData, SelfTrained
from histo_monai.models.task_model import TaskModel
from histo_monai.training.schedule import Schedule
from histo_monai.utils.randomness import Step

PSEUDO_LABELS = "pseudo_labels"
"""Last of the `measures` of a method with pseudo labels: pseudo label of each unlabeled patch, (n,), class numbers or
scores 0..1. The engine compares it with hidden labels, for curves only."""


@dataclass(frozen=True)
class Batch:
    """Input of a step, on the device of the network.

    Attributes:
        labeled: pixels, shape (B, 1, 3, H, H), uint8.
        targets: of the labeled patches, shape (B,): class numbers int64, or scores float32.
        unlabeled: pixels, shape (mu B, 1, 3, H, H), uint8.
        step: seed of all random numbers. Several processes run the step side by side on the whole batch; only encoders
            (`models.encoder.Encoder`) divide its rows (`models.shared_rows`).
        pseudo_labels: for methods with `needs_neighbors`, from the start model and spatial neighbors
            (`semisupervised.teaching.neighbors`), shape (mu B, K): class probabilities, or scores.
    """

    labeled: torch.Tensor
    targets: torch.Tensor
    unlabeled: torch.Tensor
    step: Step
    pseudo_labels: torch.Tensor | None = None


class HeadTeacher(Protocol):
    """A method that fits a head on frozen features of labeled and unlabeled patches.

    Attributes:
        Settings: frozen dataclass below `settings.MethodSettings`, with "head" in `finetune_modes`.
    """

    Settings: ClassVar[type]

    @staticmethod
    def fit_head(data: HeadData, settings: Any) -> SelfTrained:
        """Head, and whether unlabeled patches are in it.

        Args:
            settings: of the method.

        Raises:
            InputError: the method does not learn labels of this kind.
        """


class SemiSupervised(Protocol):
    """A method that learns classes or scores from labeled and unlabeled patches.

    Built with keyword arguments: `model` (start), `objective` (classes or scores), `patch_px`, `mpp` (µm/px of the
    views, or None), `n_aug` (operations of the paper's strong view), `recipe` (`settings.StudentRecipe`; without
    `by_recipe`, the section of the dataset) and `settings`, an instance of `Settings`. A step is: `views`, then
    `outputs` in the engine's precision, then `measure` with the mean "loss" to minimize, then `after_step`. A method
    with `needs_neighbors` also has `sampling_probabilities(pseudo_labels)`: of each unlabeled patch, shape (N,), from
    the pseudo labels of all, (N, K).

    Attributes:
        Settings: frozen dataclass below `settings.MethodSettings`, annotated by `histo_monai.utils.settings.rules`.
        measures: keys of `measure`, "loss" first.
        network: all trained modules, buffers and averaged copies; its state resumes a killed run. The engine moves it
            to the device and puts it into training mode before each step.
        model: patches -> outputs; the weights that predict: validated after each epoch, and saved at the end.
    """

    Settings: ClassVar[type]
    measures: tuple[str, ...]

    @property
    def network(self) -> nn.Module:
        """All trained modules, buffers and averaged copies."""

    @property
    def model(self) -> TaskModel:
        """Model that predicts: patches -> outputs."""

    def optimizer(self, schedule: Schedule) -> torch.optim.Optimizer:
        """Optimizer of the trained parameters, each group with its learning rate."""

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Inputs of the network, each of shape (n, 3, P, P), float32, 0..1."""

    def outputs(self, views: tuple[torch.Tensor, ...]) -> Any:
        """Outputs of the network for the views, with gradients for trained modules."""

    def measure(self, outputs: Any, batch: Batch) -> dict[str, torch.Tensor]:
        """Values of `measures`, each of shape (n,); only "loss" has a gradient."""

    def after_step(self) -> None:
        """Update the method after each optimizer step."""

    def after_epoch(self) -> None:
        """Update the method after each epoch, before validation."""

    def pairs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """Weak and strong views of the unlabeled patches with predictions, for a picture.

        Returns:
            Two arrays of views (n, 3, P, P), float32, 0..1, and two of predictions (n, K).
        """
