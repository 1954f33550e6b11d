"""A pretext in one file: by which quarter turn was a patch turned? (Gidaris et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.protocol import Task
from histo_monai.pretraining.settings import PretextSettings
from histo_monai.transforms.fixed_views import unaugmented_view
from histo_monai.utils.randomness import Step
from histo_monai.utils.settings.rules import Count, Positive


@dataclass(frozen=True)
class ToySettings(PretextSettings):
    """Passes over the patches, patches per step, and the rate."""

    epochs: Count
    batch_size: Count
    lr: Positive


class ToyNetwork(nn.Module):
    """The encoder, and a linear layer over its features."""

    def __init__(self, start: EncoderStart, patch_px: int) -> None:
        super().__init__()
        self.encoder = start.build(patch_px).encoder
        self.head = nn.Linear(self.encoder.num_features, 4)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(patches))


class ToyPretext:
    """See `histo_monai.pretraining.protocol.Pretext`; it reads the coarsest resolution alone."""

    Settings: ClassVar[type[PretextSettings]] = ToySettings
    MEASURES: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    KEEPS_BEST: ClassVar[bool] = False

    def __init__(
        self,
        *,
        start: EncoderStart,
        patch_px: int,
        mpps: tuple[float, ...],
        augmentation_prob: float,
        settings: ToySettings,
    ) -> None:
        self.network = ToyNetwork(start, patch_px)
        self.mpps = mpps[-1:]
        self.epochs, self.batch_size = settings.epochs, settings.batch_size
        self._patch_px, self._lr = patch_px, settings.lr

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        own_rows, total = step.process_rows(len(patches))
        turns = torch.from_numpy(step.generator("turns").integers(4, size=total)[own_rows])
        return self._task(patches, turns.to(patches.device))

    def validation_task(self, patches: torch.Tensor, rows: torch.Tensor) -> Task:
        return self._task(patches, rows % 4)

    def _task(self, patches: torch.Tensor, turns: torch.Tensor) -> Task:
        views = unaugmented_view(patches, self._patch_px).squeeze(1)
        turned = [view.rot90(int(turn), (-2, -1)) for view, turn in zip(views, turns, strict=True)]
        return Task((torch.stack(turned),), turns)

    def measure(self, outputs: torch.Tensor, task: Task) -> dict[str, torch.Tensor]:
        loss = F.cross_entropy(outputs.float(), task.targets, reduction="none")
        return {"loss": loss, "accuracy": (outputs.argmax(dim=1) == task.targets).float()}

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(network.parameters(), lr=self._lr)

    def after_step(self, outputs: torch.Tensor, task: Task) -> None:
        pass

    def encoder_state(self) -> dict[str, torch.Tensor]:
        return {f"encoder.{name}": value for name, value in self.network.encoder.state_dict().items()}

    def description(self) -> Mapping[str, Any]:
        about = {"architecture": "toy", "head": "linear", "patch_px": self._patch_px, "mpps": self.mpps}
        return self.network.encoder.description(**about)

    def picture(self, outputs: torch.Tensor, task: Task) -> np.ndarray:
        row = torch.cat(list(task.inputs[0]), dim=-1)
        return (row * 255).byte().permute(1, 2, 0).cpu().numpy()
