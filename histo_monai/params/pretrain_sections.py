"""The sections of params.yaml that say what is pretrained, and how: the encoder, and one section for each method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.settings.rules import Count, Fraction, NumberOf, Positive, Range, Seed

_Mean = Annotated[tuple[Annotated[float, Range(-1.0, 1.0)], ...], NumberOf(3)]
_Std = Annotated[tuple[Annotated[float, Range(0.0, 1.0, exclusive_low=True)], ...], NumberOf(3)]


@dataclass(frozen=True)
class EncoderParams:
    """The encoder that methods pretrain: its architecture, and published weights to start from.

    Attributes:
        name: a ResNet of torchvision, or any name of timm.
        weights: file, from the project's root; null starts at random. The method `random` does so in any case.
        sha256: of the file, hexadecimal. What is recorded is what was loaded, and another file trains anew.
        license: of the weights, in words; goes into the record of every model made from them.
        mean: of R, G, B at full scale 0..1, that the weights were trained with; null: those published for the name.
        std: likewise.
    """

    name: str
    weights: str | None
    sha256: str | None
    license: str | None
    mean: _Mean | None
    std: _Std | None


@dataclass(frozen=True)
class AugmentationParams:
    """How likely each operation of the pretraining augmentation is (paper: section 1 of the method)."""

    prob: Fraction


@dataclass(frozen=True)
class LookaheadParams:
    """Lookahead (Zhang et al. 2019): every `steps` iterations the slow weights move by `slow_step`."""

    steps: Count
    slow_step: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]


@dataclass(frozen=True)
class RSPParams:
    """Optimiser of resolution sequence prediction: SGD with Nesterov momentum inside Lookahead."""

    epochs: Count
    batch_size: Annotated[int, Range(2)]
    lr: Positive
    momentum: Annotated[float, Range(0.0, 0.999, exclusive_low=True)]
    weight_decay: Annotated[float, Range(0.0)]
    lookahead: LookaheadParams


@dataclass(frozen=True)
class MoCoParams:
    """Momentum contrast: SGD with Nesterov momentum; `key_momentum` of the key encoder, for every step."""

    epochs: Count
    batch_size: Annotated[int, Range(2)]
    lr: Positive
    momentum: Annotated[float, Range(0.0, 0.999, exclusive_low=True)]
    weight_decay: Annotated[float, Range(0.0)]
    queue_size: Count
    key_momentum: Annotated[float, Range(0.0, 1.0)]
    temperature: Positive


@dataclass(frozen=True)
class VAEParams:
    """Variational autoencoder: Adam; weight of the KL term, and channels of the decoder's last block."""

    epochs: Count
    batch_size: Annotated[int, Range(2)]
    lr: Positive
    weight_decay: Annotated[float, Range(0.0)]
    kl_weight: Annotated[float, Range(0.0)]
    decoder_width: Count


@dataclass(frozen=True)
class NoParams:
    """Nothing to set: the encoder stays as it starts."""


@dataclass(frozen=True)
class PretrainParams:
    """Self-supervised pretraining."""

    seed: Seed
    augmentation: AugmentationParams
    random: NoParams
    pretrained: NoParams
    vae: VAEParams
    moco: MoCoParams
    rsp: RSPParams
