"""Settings of the pretraining methods: sections of `pretrain` in params.yaml, read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from histo_monai.utils.settings.reader import ParamsError
from histo_monai.utils.settings.recipe import warmup_cosine
from histo_monai.utils.settings.rules import Count, Fraction, Positive, Range


@dataclass(frozen=True)
class PretextSettings:
    """Base of a method's settings, the section `pretrain.<method>`.

    Attributes:
        needs_slides: whether the method trains on slides.
        ignores_stains: whether training makes the encoder invariant to stain; such encoders grade cells and stains
            worse.
    """

    needs_slides: ClassVar[bool] = True
    ignores_stains: ClassVar[bool] = False

    @property
    def offsets(self) -> tuple[tuple[float, float], ...]:
        """Centers of a sample: (y, x) from its center, in sides of the finest patch."""
        return ((0.0, 0.0),)

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """Refuse settings that contradict other params; called on reading, for methods in use.

        Args:
            corpus: name of the pretraining dataset.
            num_train: number of training samples.
            weights: file that the encoder starts from, or None.

        Raises:
            ParamsError: one line that begins with the key.
        """


@dataclass(frozen=True)
class RandomSettings(PretextSettings):
    """Settings of an untrained encoder: none."""

    needs_slides: ClassVar[bool] = False


@dataclass(frozen=True)
class TrainedSettings(PretextSettings):
    """Length and learning rates of a method that trains.

    Attributes:
        epochs: passes over the training samples.
        batch_size: samples per step, over all processes.
        lr: highest learning rate; with `encoder.weights`, of the layers that the method adds to the encoder.
        lr_from_weights: highest learning rate of an encoder that starts from `encoder.weights`.
        warmup: fraction of the steps with a linear rise of the rates, before a cosine decay; None: constant rates.
    """

    epochs: Count
    batch_size: Annotated[int, Range(2)]
    lr: Positive
    lr_from_weights: Positive
    warmup: Fraction | None

    def encoder_lr(self, *, has_weights: bool) -> float:
        """Highest learning rate of the encoder."""
        return self.lr_from_weights if has_weights else self.lr

    def rate(self, *, epoch: int, step: int, num_steps: int) -> float:
        """Learning rate of a step, relative to the highest (`training.schedule.Rates`)."""
        return warmup_cosine(self.warmup, step=step, num_steps=num_steps)


@dataclass(frozen=True)
class NesterovSettings(TrainedSettings):
    """SGD with Nesterov momentum.

    Attributes:
        momentum: Nesterov momentum.
        weight_decay: L2.
    """

    momentum: Annotated[float, Range(0.0, 0.999, exclusive_low=True)]
    weight_decay: Annotated[float, Range(0.0)]


@dataclass(frozen=True)
class LookaheadSettings:
    """Lookahead (Zhang et al. 2019).

    Attributes:
        steps: k, iterations between updates of the slow weights.
        slow_step: alpha, interpolation weight of the update.
    """

    steps: Count
    slow_step: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]


@dataclass(frozen=True)
class OrderSettings(NesterovSettings):
    """`NesterovSettings` inside Lookahead; a sample is a triple.

    Attributes:
        lookahead: slow weights around SGD.
    """

    lookahead: LookaheadSettings


@dataclass(frozen=True)
class ContrastSettings:
    """Momentum contrast.

    Attributes:
        queue_size: negative keys of a query.
        key_momentum: weight of the old key network at each step.
        temperature: divides the cosine similarities.
        ignores_stains: true, as the views change colors.
    """

    ignores_stains: ClassVar[bool] = True

    queue_size: Count
    key_momentum: Fraction
    temperature: Positive

    def check_queue(self, method: str, corpus: str, num_train: int) -> None:
        """Refuse a queue that one epoch does not fill.

        Raises:
            ParamsError: `queue_size` is above `num_train`.
        """
        if self.queue_size > num_train:
            raise ParamsError(
                f"pretrain.{method}.queue_size: {self.queue_size} keys, but an epoch has {num_train} samples. "
                f"Fix: expected at most corpora.{corpus}.num_train, {num_train}."
            )


@dataclass(frozen=True)
class PretrainedSettings(RandomSettings):
    """Settings of unchanged published weights: none."""

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """Refuse params without a weights file."""
        if weights is None:
            raise ParamsError(
                "encoder.weights: null, but `pretraining_methods` holds pretrained. Fix: put a file into data/weights "
                "and write its name and sha256 here."
            )


@dataclass(frozen=True)
class VAESettings(TrainedSettings):
    """Adam (the paper names no optimizer), KL weight, and decoder size.

    Attributes:
        weight_decay: L2.
        kl_weight: of the KL term; 1 is the evidence lower bound.
        decoder_width: channels of the decoder's last maps; the paper names none, BigGAN has 96.
    """

    weight_decay: Annotated[float, Range(0.0)]
    kl_weight: Annotated[float, Range(0.0)]
    decoder_width: Count


@dataclass(frozen=True)
class MoCoSettings(ContrastSettings, NesterovSettings):
    """`NesterovSettings` and `ContrastSettings`."""

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """Refuse a queue that one epoch does not fill."""
        self.check_queue("moco", corpus, num_train)


@dataclass(frozen=True)
class DINOSettings(TrainedSettings):
    """AdamW, views, and self-distillation.

    Attributes:
        weight_decay: decoupled from the gradient.
        adjacent: whether the second global view shows the patch to the right, not the same patch.
        num_local: small crops of a patch for the student, beside two global views.
        num_prototypes: outputs of the projection head.
        teacher_momentum: weight of the old teacher at each step.
        center_momentum: weight of the old center at each step.
        student_temperature: divides the student's logits.
        teacher_temperature: divides the teacher's centered logits; lower: sharper targets.
        ignores_stains: true, as the views change colors.
    """

    ignores_stains: ClassVar[bool] = True

    weight_decay: Annotated[float, Range(0.0)]
    adjacent: bool
    num_local: Annotated[int, Range(0, 16)]
    num_prototypes: Annotated[int, Range(2, 2**20)]
    teacher_momentum: Fraction
    center_momentum: Fraction
    student_temperature: Positive
    teacher_temperature: Positive

    @property
    def offsets(self) -> tuple[tuple[float, float], ...]:
        """The sample's center, and the one to its right with `adjacent`."""
        return ((0.0, 0.0), (0.0, 1.0)) if self.adjacent else super().offsets

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """Refuse targets that are not sharper than the student's outputs: they lead to equal outputs for all patches.

        Raises:
            ParamsError: `teacher_temperature` is not below `student_temperature`.
        """
        if self.teacher_temperature >= self.student_temperature:
            raise ParamsError(
                f"pretrain.dino.teacher_temperature: {self.teacher_temperature:g} is not below student_temperature, "
                f"{self.student_temperature:g}. Fix: lower it, for example to {0.4 * self.student_temperature:g}."
            )


@dataclass(frozen=True)
class RSPSettings(OrderSettings):
    """`OrderSettings` of the paper's pretext task."""


@dataclass(frozen=True)
class RSPMoCoSettings(ContrastSettings, OrderSettings):
    """`OrderSettings` and `ContrastSettings`.

    Attributes:
        contrast: weight of InfoNCE beside the loss of the orders.
    """

    contrast: Annotated[float, Range(0.0)]

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """Refuse a queue that one epoch does not fill."""
        self.check_queue("rsp_moco", corpus, num_train)
