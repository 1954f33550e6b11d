"""What a pretraining method is to the engine. A new method is one file and one line in `PRETEXTS`."""

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
    """A batch turned into something to solve: what the network is called with, and what it should say."""

    inputs: tuple[torch.Tensor, ...]
    targets: torch.Tensor


class Pretext(Protocol):
    """A self-supervised method: how patches become a task, what solves it, and what of that is kept.

    Built with keyword arguments: `start` (the encoder), `patch_px`, `mpps` (resolutions of the corpus, µm/px, finest
    first), `augmentation_prob` (of each operation of `PretrainAugmentation`) and `settings`, an instance of `Settings`.

    Attributes:
        Settings: frozen dataclass of what params can set of it below `pretrain.<name>`, a `PretextSettings`.
        MEASURES: names that `measure` gives, "loss" first.
        KEEPS_BEST: whether the weights of the lowest validation loss are kept; else the last ones, for methods whose
            validation losses of different epochs do not mean the same.
        network: everything that trains, and what follows it (buffers, slow copies); called with `Task.inputs`.
        mpps: S resolutions in µm/px, finest first, of the patches that it is given.
        epochs: passes over the training samples; 0 keeps the network as it was initialized.
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
        """See the class."""

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        """(n, S, 3, P, P) uint8 on the device of the network, and their rows (n,) in the table -> an augmented task."""

    def validation_task(self, patches: torch.Tensor, rows: torch.Tensor) -> Task:
        """The same without chance: a function of the patch and its row, equal in every epoch."""

    def measure(self, outputs: Any, task: Task) -> dict[str, torch.Tensor]:
        """Outputs of the network against the targets, per sample: "loss" (minimized) first, each of Shape (n,)."""

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """The method's optimizer over `network`, which may be wrapped for several processes."""

    def after_step(self, outputs: Any, task: Task) -> None:
        """Called after each optimizer step, with what the step saw: this process's share of the batch."""

    def encoder_state(self) -> dict[str, torch.Tensor]:
        """What fine-tuning starts from, by name."""

    def description(self) -> Mapping[str, Any]:
        """What `encoder_state` is, for the JSON beside it."""

    def picture(self, outputs: Any, task: Task) -> np.ndarray:
        """A validation batch and the network's answers as an image, (H, W, 3) uint8."""
