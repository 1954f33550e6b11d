"""What params can set of the variational autoencoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.pretext.settings import PretextSettings
from histo_monai.settings.rules import Count, Positive, Range


@dataclass(frozen=True)
class VAESettings(PretextSettings):
    """Adam, the weight of the KL term, and the size of the decoder.

    Attributes:
        epochs: passes over the training patches.
        batch_size: patches per step, over all processes.
        lr: constant learning rate of Adam; the paper names no optimizer.
        weight_decay: L2.
        kl_weight: of the KL term; 1 is the evidence lower bound.
        decoder_width: channels of the decoder's last maps; the paper names none, BigGAN has 96.
    """

    epochs: Count
    batch_size: Annotated[int, Range(2)]
    lr: Positive
    weight_decay: Annotated[float, Range(0.0)]
    kl_weight: Annotated[float, Range(0.0)]
    decoder_width: Count
