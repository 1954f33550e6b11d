"""Settings of the pretraining methods: sections of `pretrain` in params.yaml, read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from histo_monai.utils.settings.reader import ParamsError
from histo_monai.utils.settings.rules import Count, Fraction, Positive, Range


@dataclass(frozen=True)
class PretextSettings:
    """What params can set of a method, in the section `pretrain.<method>`; of itself nothing.

    Attributes:
        needs_slides: whether the method learns from the slides of the corpus, so that there must be some.
        ignores_stains: whether it learns to see the same in other stains, and scores of cells and stains worse.
    """

    needs_slides: ClassVar[bool] = True
    ignores_stains: ClassVar[bool] = False

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """Refuse what does not go with the rest of the params; called when they are read, if the method is in use.

        Args:
            corpus: name of the corpus.
            num_train: its training samples.
            weights: file that the encoder starts from, None without.

        Raises:
            ParamsError: one line that begins with the key.
        """


@dataclass(frozen=True)
class RandomSettings(PretextSettings):
    """An encoder that does not train: nothing to set, and no slide is needed."""

    needs_slides: ClassVar[bool] = False


@dataclass(frozen=True)
class NesterovSettings(PretextSettings):
    """SGD with Nesterov momentum.

    Attributes:
        epochs: passes over the training samples.
        batch_size: samples per step, over all processes.
        lr: constant learning rate of SGD.
        momentum: Nesterov momentum.
        weight_decay: L2.
    """

    epochs: Count
    batch_size: Annotated[int, Range(2)]
    lr: Positive
    momentum: Annotated[float, Range(0.0, 0.999, exclusive_low=True)]
    weight_decay: Annotated[float, Range(0.0)]


@dataclass(frozen=True)
class LookaheadSettings:
    """Lookahead (Zhang et al. 2019).

    Attributes:
        steps: k, in iterations: after so many the slow weights move.
        slow_step: alpha, the share of the way that they move.
    """

    steps: Count
    slow_step: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]


@dataclass(frozen=True)
class OrderSettings(NesterovSettings):
    """As `NesterovSettings`, inside Lookahead; a sample is a triple.

    Attributes:
        lookahead: see `LookaheadSettings`.
    """

    lookahead: LookaheadSettings


@dataclass(frozen=True)
class ContrastSettings:
    """Momentum contrast.

    Attributes:
        queue_size: keys that a query is held against.
        key_momentum: share of the key network that stays at each step.
        temperature: divides the cosine similarities.
        ignores_stains: as in `PretextSettings`; its views change colors.
    """

    ignores_stains: ClassVar[bool] = True

    queue_size: Count
    key_momentum: Fraction
    temperature: Positive

    def check_queue(self, method: str, corpus: str, num_train: int) -> None:
        """One epoch fills the queue.

        Raises:
            ParamsError: it does not.
        """
        if self.queue_size > num_train:
            raise ParamsError(
                f"pretrain.{method}.queue_size: expected at most corpora.{corpus}.num_train, {num_train}, so that one "
                f"epoch fills the queue, got {self.queue_size}"
            )


@dataclass(frozen=True)
class PretrainedSettings(RandomSettings):
    """Nothing to set: the encoder stays as its file says."""

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """See `PretextSettings`; there is a file."""
        if weights is None:
            raise ParamsError(
                "encoder.weights: null, but `pretraining_methods` holds pretrained; put a file into data/weights and "
                "name it "
                "here, with its sha256"
            )


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


@dataclass(frozen=True)
class MoCoSettings(ContrastSettings, NesterovSettings):
    """As `NesterovSettings`, and `ContrastSettings`."""

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """See `PretextSettings`; one epoch fills the queue."""
        self.check_queue("moco", corpus, num_train)


@dataclass(frozen=True)
class RSPSettings(OrderSettings):
    """As `OrderSettings`."""


@dataclass(frozen=True)
class RSPMoCoSettings(ContrastSettings, OrderSettings):
    """As `OrderSettings`, and `ContrastSettings`.

    Attributes:
        contrast: weight of InfoNCE beside the loss of the orders.
    """

    contrast: Annotated[float, Range(0.0)]

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """See `PretextSettings`; one epoch fills the queue."""
        self.check_queue("rsp_moco", corpus, num_train)
