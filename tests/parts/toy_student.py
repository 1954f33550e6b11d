"""A semi-supervised method in one file: a mean teacher over the whole network, and views that are turned by halves."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import nn

from histo_monai.models.losses import Objective
from histo_monai.models.task_model import TaskModel
from histo_monai.semisupervised.protocol import Batch
from histo_monai.semisupervised.settings import MethodSettings, StudentRecipe
from histo_monai.training.schedule import Schedule
from histo_monai.transforms.fixed_views import unaugmented_view
from histo_monai.utils.settings.rules import Range

Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class ToySettings(MethodSettings):
    """What the teacher keeps of itself in each step."""

    decay: Annotated[float, Range(0.0, 1.0)]


class ToyStudent:
    """See `protocol.SemiSupervised`; the teacher predicts, and the trunk trains at a tenth of the head's rate."""

    Settings: ClassVar[type] = ToySettings

    def __init__(
        self,
        *,
        model: TaskModel,
        objective: Objective,
        patch_px: int,
        mpp: float | None,
        n_aug: int,
        recipe: StudentRecipe,
        settings: ToySettings,
    ) -> None:
        self.student = copy.deepcopy(model)
        self.model = model.requires_grad_(False)
        self.network = nn.ModuleList([self.student, self.model])
        self.measures = ("loss", "supervised", "distance")
        self._objective, self._patch_px, self._decay = objective, patch_px, settings.decay
        self.num_steps = self.num_epochs = 0

    def optimizer(self, schedule: Schedule) -> torch.optim.Optimizer:
        groups = [
            {"params": list(self.student.encoder.parameters()), "lr": schedule.lr / 10},
            {"params": list(self.student.head.parameters())},
        ]
        return torch.optim.SGD(groups, lr=schedule.lr)

    def views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        labeled, unlabeled = (
            unaugmented_view(patches, self._patch_px).squeeze(1)
            for patches in (batch.labeled, batch.unlabeled)
        )
        return labeled, unlabeled, unlabeled.flip(-1, -2)

    def outputs(self, views: tuple[torch.Tensor, ...]) -> Outputs:
        labeled, weak, strong = views
        with torch.no_grad():
            teacher = self.model(weak)
        return self.student(labeled), teacher, self.student(strong)

    def measure(self, outputs: Outputs, batch: Batch) -> dict[str, torch.Tensor]:
        of_labeled, teacher, student = outputs
        supervised = self._objective.measure(of_labeled, batch.targets)["loss"]
        distance = (student - teacher).square().mean(dim=1)
        return {
            "loss": (supervised.mean() + distance.mean()).unsqueeze(0),
            "supervised": supervised,
            "distance": distance,
        }

    def after_step(self) -> None:
        self.num_steps += 1
        ours, theirs = self.model.state_dict(), self.student.state_dict()
        with torch.no_grad():
            for name, value in ours.items():
                if value.is_floating_point():
                    value.lerp_(theirs[name], 1 - self._decay)

    def after_epoch(self) -> None:
        self.num_epochs += 1

    def pairs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        self.network.eval()
        _, weak, strong = self.views(batch)
        with torch.no_grad():
            predictions = [
                self._objective.predictions(network(view))
                for network, view in ((self.model, weak), (self.student, strong))
            ]
        return tuple(x.cpu().numpy() for x in (weak, strong, *predictions))
