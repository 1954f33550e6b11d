"""Resolution sequence prediction (paper, section 3.1): in which of 3! orders do three concentric patches stand?"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.orders import ORDERS, OrderPrediction
from histo_monai.pretraining.protocol import Task
from histo_monai.pretraining.settings import OrderSettings, PretextSettings, RSPSettings
from histo_monai.training.lookahead import Lookahead
from histo_monai.training.schedule import parameter_groups
from histo_monai.transforms.views import PretrainAugmentation
from histo_monai.utils.randomness import Step
from histo_monai.utils.transfer import sent


class RSP(OrderPrediction):
    """Resolution sequence prediction, the paper's pretext task.

    Training shows each triple in one random order per epoch. Validation shows each triple in all six orders.

    Args:
        start: encoder and optional weights; a pair MLP in the file is loaded, too.
        mpps: the three resolutions, µm/px, finest first.

    Raises:
        ValueError: there are not three resolutions.
    """

    Settings: ClassVar[type[PretextSettings]] = RSPSettings

    def __init__(
        self,
        *,
        start: EncoderStart,
        patch_px: int,
        mpps: tuple[float, ...],
        augmentation_prob: float,
        settings: OrderSettings,
    ) -> None:
        super().__init__(start=start, patch_px=patch_px, mpps=mpps)
        self.epochs = settings.epochs
        self.batch_size = settings.batch_size
        self._augment = PretrainAugmentation(patch_px, prob=augmentation_prob)
        self._settings = settings
        self._encoder_lr = settings.encoder_lr(has_weights=start.weights is not None)

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        """Augmented triples, each in one random order."""
        own_rows, total = step.process_rows(len(patches))
        self._augment.set_random_state(step.derive_seed("augmentation"))
        parameters = self._augment.randomize(total, patches.shape[1]).rows(own_rows)
        views = self._augment.apply(patches, parameters)
        orders = step.generator("order").integers(len(ORDERS), size=total)[own_rows]
        shown = sent(torch.from_numpy(orders), patches.device).unsqueeze(1)
        return Task((views, shown), shown)

    @property
    def _given(self) -> nn.Module:
        """Modules that start from `encoder.weights`."""
        network = self.network
        return nn.ModuleList([network.encoder, network.pair_mlp]) if self.brings_pair_mlp else network.encoder

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """SGD with Nesterov momentum, inside Lookahead."""
        settings, lookahead = self._settings, self._settings.lookahead
        sgd = torch.optim.SGD(
            parameter_groups(network, self._given, lr=settings.lr, backbone_lr=self._encoder_lr),
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=True,
        )
        return Lookahead(sgd, steps=lookahead.steps, slow_step=lookahead.slow_step)
