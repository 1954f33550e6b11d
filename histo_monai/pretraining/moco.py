"""Momentum contrast (He et al. 2020; the paper's appendix "MoCo")."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.contrastive_views import NUM_VALIDATION_VIEWS, ContrastiveViews
from histo_monai.pretraining.momentum import (
    MomentumContrast,
    info_nce,
    other_keys_of_batch,
    positive_is_nearest,
)
from histo_monai.pretraining.protocol import Task
from histo_monai.pretraining.settings import MoCoSettings, PretextSettings
from histo_monai.training.pictures.matches import mosaic_of_matches
from histo_monai.training.schedule import parameter_groups
from histo_monai.utils.randomness import Step, derive_seed

Points = tuple[torch.Tensor, torch.Tensor]
"""Queries and keys, (n, 128) each."""


class MoCo:
    """Instance discrimination against a queue of keys.

    A sample is two views of one patch at the finest resolution; targets are the rows of the samples. A key enters the
    queue after its step as positive. Older keys of a patch do not count as its negatives. The last weights are saved,
    as in He et al. While the key network moves fast, old keys are easy negatives, so early training losses are low.
    Validation uses other negatives (`measure`).

    Args:
        mpps: resolutions of the dataset, µm/px, finest first; only the finest is read.
        augmentation_prob: unused; every view has all operations of `ContrastiveViews`.

    Raises:
        ValueError: there is no resolution, or a number is outside its range.
    """

    Settings: ClassVar[type[PretextSettings]] = MoCoSettings
    MEASURES: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    KEEPS_BEST: ClassVar[bool] = False

    def __init__(
        self,
        *,
        start: EncoderStart,
        patch_px: int,
        mpps: tuple[float, ...],
        augmentation_prob: float,
        settings: MoCoSettings,
    ) -> None:
        if not mpps:
            raise ValueError("momentum contrast reads the finest resolution, got none")
        if not settings.temperature > 0:
            raise ValueError(f"the temperature is positive, got {settings.temperature}")
        self._encoder_lr = settings.encoder_lr(has_weights=start.weights is not None)
        self._lr = settings.lr
        encoder = start.build(patch_px).encoder
        self._network = MomentumContrast(encoder, settings.queue_size, settings.key_momentum)
        self.epochs = settings.epochs
        self.batch_size = settings.batch_size
        self.patch_px = patch_px
        self.mpps: tuple[float, ...] = mpps[:1]
        self.temperature = settings.temperature
        self._augment = ContrastiveViews(patch_px)
        self._augment.set_random_state(derive_seed(0, "validation views"))
        self._validation_views = self._augment.randomize(NUM_VALIDATION_VIEWS, 1)
        self._sgd = partial(
            torch.optim.SGD,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=True,
        )

    @property
    def network(self) -> MomentumContrast:
        """Query network, key network and queue."""
        return self._network

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        """Two random views of each patch."""
        own_rows, total = step.process_rows(len(patches))
        self._augment.set_random_state(step.derive_seed("augmentation"))
        parameters = self._augment.randomize(total, patches.shape[1]).rows(own_rows)
        query, key = self._augment.apply(patches, parameters)
        return Task((query.squeeze(1), key.squeeze(1)), rows)

    def validation_task(self, patches: torch.Tensor, rows: torch.Tensor) -> Task:
        """Two fixed views of each patch; row r uses parameters r modulo 64."""
        parameters = self._validation_views.numbers(rows.cpu() % NUM_VALIDATION_VIEWS)
        query, key = self._augment.apply(patches, parameters)
        return Task((query.squeeze(1), key.squeeze(1)), rows)

    def measure(self, outputs: Points, task: Task) -> dict[str, torch.Tensor]:
        """InfoNCE, and whether the positive ranks first.

        In training, negatives are the keys of other patches in the queue. Their age alone separates them from the
        positive while the network moves fast: in the first epoch on simulated slides, up to nine of ten positives
        ranked first, and none against keys of equal age. In evaluation mode, negatives are the other keys of the batch,
        all from the current network: equal pairs and negatives after every epoch, on any number of processes.
        """
        queries, keys = outputs
        if self.network.training:
            negatives = self.network.queue.keys
            valid = self.network.queue.negatives_of(task.targets)
        else:
            negatives, valid = other_keys_of_batch(keys, task.targets)
        return {
            "loss": info_nce(queries, keys, negatives, temperature=self.temperature, valid=valid),
            "accuracy": positive_is_nearest(queries.detach(), keys, negatives, valid=valid),
        }

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """SGD with Nesterov momentum, over the query network."""
        encoder = self.network.query.encoder
        return self._sgd(parameter_groups(network, encoder, lr=self._lr, backbone_lr=self._encoder_lr))

    def after_step(self, outputs: Points, task: Task) -> None:
        """The key network follows; the keys of the step enter the queue."""
        self.network.follow()
        self.network.enqueue(outputs[1], task.targets)

    def encoder_state(self) -> dict[str, torch.Tensor]:
        """Backbone of the query network; fine-tuning drops the projection."""
        return {f"encoder.{name}": value for name, value in self.network.query.encoder.state_dict().items()}

    def description(self) -> Mapping[str, Any]:
        """Architecture, resolution and normalization of the encoder."""
        encoder = self.network.query.encoder
        return encoder.description(
            architecture=f"{encoder.name} trunk", head="linear", patch_px=self.patch_px, mpps=self.mpps
        )

    def picture(self, outputs: Points, task: Task) -> np.ndarray:
        """Image of each patch's two views and the nearest key of the batch."""
        queries, keys = outputs
        query_views, key_views = (views.float().cpu().numpy() for views in task.inputs)
        similarities = (queries @ keys.T).float().cpu().numpy()
        return mosaic_of_matches(query_views, key_views, similarities, names=("query", "key"))
