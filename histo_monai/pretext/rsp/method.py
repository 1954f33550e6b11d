"""Resolution sequence prediction: in which of 3! orders do three concentric patches stand? (paper, section 3.1)."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from histo_monai.networks.start import EncoderStart
from histo_monai.pretext.orders import ORDERS, OrderPrediction
from histo_monai.pretext.protocol import Task
from histo_monai.pretext.rsp.lookahead import Lookahead
from histo_monai.randomness import Step
from histo_monai.transforms.views import PretrainAugmentation


class RSP(OrderPrediction):
    """The paper's pretext task behind the `Pretext` protocol.

    Training shows each triple in one order, drawn anew for every sample and epoch. Validation shows it in all six.

    Args:
        start: encoder, and the file that it starts from, if any; a pair MLP in the file is loaded, too.
        patch_px: side of the patches that the trunk sees.
        mpps: the three resolutions, µm/px, finest first.
        augmentation_prob: see `PretrainAugmentation`.
        epochs: passes over the training triples.
        batch_size: triples per step, over all processes.
        lr: constant learning rate of SGD.
        momentum: Nesterov momentum.
        weight_decay: L2.
        lookahead_steps: k of Lookahead, in iterations.
        lookahead_slow_step: alpha of Lookahead.

    Raises:
        ValueError: there are not three resolutions.
    """

    def __init__(
        self,
        *,
        start: EncoderStart,
        patch_px: int,
        mpps: tuple[float, ...],
        augmentation_prob: float,
        epochs: int,
        batch_size: int,
        lr: float,
        momentum: float,
        weight_decay: float,
        lookahead_steps: int,
        lookahead_slow_step: float,
    ) -> None:
        super().__init__(start=start, patch_px=patch_px, mpps=mpps)
        self.epochs = epochs
        self.batch_size = batch_size
        self._augment = PretrainAugmentation(patch_px, prob=augmentation_prob)
        self._sgd = partial(
            torch.optim.SGD, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=True
        )
        self._lookahead = partial(Lookahead, steps=lookahead_steps, slow_step=lookahead_slow_step)

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        """Augment, and draw one order per triple."""
        share, total = step.share(len(patches))
        self._augment.set_random_state(step.derive_seed("augmentation"))
        drawn = self._augment.randomize(total, patches.shape[1]).rows(share)
        views = self._augment.apply(patches, drawn)
        orders = step.generator("order").integers(len(ORDERS), size=total)[share]
        shown = torch.from_numpy(orders).to(patches.device, non_blocking=True).unsqueeze(1)
        return Task((views, shown), shown)

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """SGD with Nesterov momentum, inside Lookahead."""
        return self._lookahead(self._sgd(network.parameters()))
