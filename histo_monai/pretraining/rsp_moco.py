"""RSP and MoCo in one network (paper, section 6)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import nn

from histo_monai.models.average import follow
from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.contrastive_views import NUM_VALIDATION_VIEWS, ContrastiveViews
from histo_monai.pretraining.momentum import (
    KEY_FEATURES,
    KeyQueue,
    info_nce,
    other_keys_of_batch,
    point_on_sphere,
    positive_is_nearest,
)
from histo_monai.pretraining.orders import RSPNetwork
from histo_monai.pretraining.protocol import Task
from histo_monai.pretraining.rsp import RSP
from histo_monai.pretraining.settings import PretextSettings, RSPMoCoSettings
from histo_monai.utils.randomness import Step, derive_seed


class Outputs(NamedTuple):
    """Logits over the orders, (n, K, 6); queries and keys, (n, 128) each, of length 1."""

    orders: torch.Tensor
    queries: torch.Tensor
    keys: torch.Tensor


class OrderAndContrast(nn.Module):
    """RSP network, with the features of the finest patch as the query of momentum contrast.

    The key network follows as in `MomentumContrast`.

    Args:
        queue_size: K.
        key_momentum: m of key <- m key + (1 - m) query, after each step.
    """

    def __init__(self, ordering: RSPNetwork, queue_size: int, key_momentum: float) -> None:
        super().__init__()
        self.key_momentum = key_momentum
        self.ordering = ordering
        self.projection = nn.Linear(ordering.encoder.num_features, KEY_FEATURES)
        self.key_encoder = copy.deepcopy(ordering.encoder).requires_grad_(False)
        self.key_projection = copy.deepcopy(self.projection).requires_grad_(False)
        self.queue = KeyQueue(queue_size)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all but the key network."""
        super().train(mode)
        self.key_encoder.eval()
        return self

    def forward(self, patches: torch.Tensor, orders: torch.Tensor, others: torch.Tensor) -> Outputs:
        """Logits of the orders, queries and keys of a batch.

        Args:
            patches: Shape (n, 3, 3, P, P), float32, 0..1; axis 1 is resolution, finest first.
            orders: Shape (n, K), int64.
            others: another view of each finest patch, Shape (n, 3, P, P).
        """
        with torch.no_grad():
            keys = point_on_sphere(self.key_projection, self.key_encoder(others))
        features = self.ordering.features(patches)
        queries = point_on_sphere(self.projection, features[:, 0])
        return Outputs(self.ordering.logits(features, orders), queries, keys)

    def follow(self) -> None:
        """Move the key network one step towards backbone and projection."""
        follow(self.key_encoder, self.ordering.encoder, self.key_momentum)
        follow(self.key_projection, self.projection, self.key_momentum)


class RSPMoCo:
    """RSP, with the finest patch as the query of MoCo; the key is a contrastive view of the patch.

    The backbone passes over three patches with gradient, as in RSP, and over one without: a third more than RSP's
    forward pass. The last weights are saved, and the pair MLP is dropped, as in MoCo.
    """

    Settings: ClassVar[type[PretextSettings]] = RSPMoCoSettings
    MEASURES: ClassVar[tuple[str, ...]] = (*RSP.MEASURES, "contrast", "nearest")
    KEEPS_BEST: ClassVar[bool] = False

    def __init__(
        self, *, start: EncoderStart, patch_px: int, settings: RSPMoCoSettings, **parts: Any
    ) -> None:
        self._rsp = RSP(start=start, patch_px=patch_px, settings=settings, **parts)
        self._network = OrderAndContrast(self._rsp.network, settings.queue_size, settings.key_momentum)
        self.epochs = settings.epochs
        self.batch_size = settings.batch_size
        self.patch_px = patch_px
        self.mpps: tuple[float, ...] = self._rsp.mpps
        self._settings = settings
        self._others = ContrastiveViews(patch_px)
        self._others.set_random_state(derive_seed(0, "validation views"))
        self._validation_views = self._others.randomize(NUM_VALIDATION_VIEWS, 1)

    @property
    def network(self) -> OrderAndContrast:
        """Backbone, heads, key network and queue."""
        return self._network

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        """RSP's task with another view of each finest patch; targets are orders and rows side by side."""
        orders = self._rsp.training_task(patches, rows, step)
        own_rows, total = step.process_rows(len(patches))
        self._others.set_random_state(step.derive_seed("other views"))
        parameters = self._others.randomize(total, 1).rows(own_rows)
        other, _ = self._others.apply(patches[:, :1], parameters)
        return _with_other(orders, other, rows)

    def validation_task(self, patches: torch.Tensor, rows: torch.Tensor) -> Task:
        """RSP's validation task with a fixed view of each finest patch, as in MoCo."""
        orders = self._rsp.validation_task(patches, rows)
        parameters = self._validation_views.numbers(rows.cpu() % NUM_VALIDATION_VIEWS)
        other, _ = self._others.apply(patches[:, :1], parameters)
        return _with_other(orders, other, rows)

    def measure(self, outputs: Outputs, task: Task) -> dict[str, torch.Tensor]:
        """Losses and accuracies of both tasks; negatives as in MoCo."""
        orders, rows = task.targets[:, :-1], task.targets[:, -1]
        ordered = self._rsp.measure(outputs.orders, Task(task.inputs, orders))
        if self.network.training:
            negatives = self.network.queue.keys
            valid = self.network.queue.negatives_of(rows)
        else:
            negatives, valid = other_keys_of_batch(outputs.keys, rows)
        contrast = info_nce(
            outputs.queries, outputs.keys, negatives, temperature=self._settings.temperature, valid=valid
        )
        nearest = positive_is_nearest(outputs.queries.detach(), outputs.keys, negatives, valid=valid)
        return {
            **ordered,
            "loss": ordered["loss"] + self._settings.contrast * contrast,
            "contrast": contrast,
            "nearest": nearest,
        }

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """RSP's optimizer, over all but the key network."""
        return self._rsp.optimizer(network)

    def after_step(self, outputs: Outputs, task: Task) -> None:
        """The key network follows; the keys of the step enter the queue."""
        self.network.follow()
        self.network.queue.add_all(outputs.keys, task.targets[:, -1])

    def encoder_state(self) -> dict[str, torch.Tensor]:
        """Backbone alone."""
        encoder = self.network.ordering.encoder
        return {f"encoder.{name}": value for name, value in encoder.state_dict().items()}

    def description(self) -> Mapping[str, Any]:
        """Architecture, resolutions and normalization of the encoder."""
        encoder = self.network.ordering.encoder
        return encoder.description(
            architecture=f"{encoder.name} trunk", head="linear", patch_px=self.patch_px, mpps=self.mpps
        )

    def picture(self, outputs: Outputs, task: Task) -> np.ndarray:
        """Image of triples with true and predicted orders."""
        return self._rsp.picture(outputs.orders, Task(task.inputs[:2], task.targets[:, :-1]))


def _with_other(orders: Task, other: torch.Tensor, rows: torch.Tensor) -> Task:
    return Task((*orders.inputs, other.squeeze(1)), torch.cat([orders.targets, rows.unsqueeze(1)], dim=1))
