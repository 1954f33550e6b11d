"""Interface between pretraining methods and their engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import nn

from histo_monai.pretraining.settings import PretextSettings
from histo_monai.utils.randomness import Step


@dataclass(frozen=True)
class Task:
    """Inputs of the network and targets of a batch."""

    inputs: tuple[torch.Tensor, ...]
    targets: torch.Tensor


class Pretext(Protocol):
    """A self-supervised method: a pretext task, a network that solves it, and the weights to save.

    Built with keyword arguments: `start` (the encoder), `patch_px`, `mpps` (resolutions of the dataset, µm/px, finest
    first), `augmentation_prob` (of each operation of `PretrainAugmentation`) and `settings`, an instance of `Settings`.

    Attributes:
        Settings: frozen dataclass of the method's params, a `PretextSettings`.
        MEASURES: keys of `measure`, "loss" first.
        KEEPS_BEST: whether to save the weights of the lowest validation loss. False: the last weights, for methods with
            validation losses that are not comparable between epochs.
        network: all trained modules, buffers and averaged copies; called with `Task.inputs`.
        mpps: S resolutions of the input patches, µm/px, finest first.
        epochs: passes over the training samples; 0 leaves the network at its initialization.
        batch_size: samples per step, over all processes.
    """

    Settings: ClassVar[type[PretextSettings]]
    MEASURES: ClassVar[tuple[str, ...]]
    KEEPS_BEST: ClassVar[bool]
    mpps: tuple[float, ...]
    epochs: int
    batch_size: int

    @property
    def network(self) -> nn.Module:
        """All trained modules, buffers and averaged copies."""

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        """An augmented task from patches (n, S, 3, P, P), uint8, on the network's device, and their table rows (n,).

        Axis 1 holds the S resolutions of the sample's center. With several `PretextSettings.offsets`, those of the next
        centers follow.
        """

    def validation_task(self, patches: torch.Tensor, rows: torch.Tensor) -> Task:
        """A task without randomness: a function of patch and row, equal in every epoch."""

    def measure(self, outputs: Any, task: Task) -> dict[str, torch.Tensor]:
        """Measures of outputs against targets, each (n,); "loss" (minimized) first."""

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """The method's optimizer over `network`, which may be wrapped for several processes."""

    def after_step(self, outputs: Any, task: Task) -> None:
        """Update the method after an optimizer step, with this process's rows of the batch."""

    def encoder_state(self) -> dict[str, torch.Tensor]:
        """Tensors that fine-tuning starts from, by name."""

    def description(self) -> Mapping[str, Any]:
        """Content of the JSON file beside `encoder_state`."""

    def picture(self, outputs: Any, task: Task) -> np.ndarray:
        """Image of a validation batch with the network's outputs, (H, W, 3) uint8."""
