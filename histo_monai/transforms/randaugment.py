"""Weak and strong views of an image: RandAugment after a common base crop."""

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from histo_monai.transforms.augmentation import Augmentation, render
from histo_monai.transforms.distributions import (
    MAX_MAGNITUDE,
    OddSteps,
    Ramp,
    RampLimit,
    Range,
    SignedRamp,
    Uniform,
    check_number,
    check_range,
)
from histo_monai.transforms.operations.base import Operation
from histo_monai.transforms.operations.blur import Blur
from histo_monai.transforms.operations.brightness_contrast import BrightnessContrast
from histo_monai.transforms.operations.geometric import Affine, Crop, Flip, Rotate, Scale
from histo_monai.transforms.operations.hed import Hed
from histo_monai.transforms.operations.hue_saturation import HueSaturation
from histo_monai.transforms.operations.noise import Noise
from histo_monai.transforms.parameters import PairParameters, ViewParameters
from histo_monai.transforms.sequence import random_distinct_schedule
from histo_monai.utils.errors import InputError

STRONG: tuple[Operation, ...] = (
    Rotate(SignedRamp(0, 90)),
    Scale(SignedRamp(0, 0.2, center=1)),
    Affine(degrees=SignedRamp(0, 90), factor=SignedRamp(0.5, 0.6, center=1), shift=SignedRamp(0, 0.1)),
    Flip(),
    Crop(Ramp(1.0, 0.7)),
    Noise(SignedRamp(0, 0.1)),
    HueSaturation(hue=SignedRamp(0, 0.5), saturation=SignedRamp(0, 1)),
    BrightnessContrast(SignedRamp(0, 0.2, center=1), SignedRamp(0, 0.2, center=1)),
    Blur(OddSteps(5, 7)),
    Hed(factor=SignedRamp(0, 0.035), shift=SignedRamp(0, 0.035)),
)
"""Operations of RandAugment. The distance from no change grows linearly with the magnitude, up to the paper's limit at
10; the blur kernel is 5 up to magnitude 5 and 7 above; the flip has no strength."""

KERNEL_MPP = 0.25
"""Resolution of the paper's patches, µm/px, whose pixels measure its blur kernel."""


def strong_operations(
    names: Sequence[str] | None = None,
    *,
    limits: Collection[str] = (),
    affine_scale: Range = (0.5, 0.6),
    hue: Range = (0.0, 0.5),
    mpp: float | None = None,
    kernel_mpp: float | None = KERNEL_MPP,
) -> tuple[Operation, ...]:
    """The operations of `STRONG` with other settings.

    Args:
        names: Selected operations, in any order; None: all ten.
        limits: Operations whose signed magnitudes are limits of a uniform distribution (`RampLimit`), as in the
            pretraining; others use the magnitude as the value, with a random sign.
        affine_scale: Distance of the affine magnification from 1 at magnitudes 0 and 10.
        hue: Distance of hue from no change at magnitudes 0 and 10, fraction of a full turn, at most half a turn.
        mpp: µm/px of the views; None: unknown.
        kernel_mpp: µm/px of the blur kernel's pixels, for an equal blur in µm at any `mpp`. If this or `mpp` is None,
            the kernel counts view pixels.

    Raises:
        InputError: A name is unknown, or a number is outside its range.
    """
    known = {operation.name: operation for operation in STRONG}
    chosen = tuple(known) if names is None else tuple(names)
    for name in (*chosen, *limits):
        if name not in known:
            raise InputError(f"strong operations: got {name}. Fix: use {', '.join(known)}.")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"strong operations: got {', '.join(chosen)}. Fix: name each once.")
    check_range("hue", hue, 0, 0.5)
    check_range("affine_scale", affine_scale, 0, 0.99)
    changed: dict[str, dict[str, Any]] = {
        Affine.name: {"factor": SignedRamp(*affine_scale, center=1)},
        HueSaturation.name: {"hue": SignedRamp(*hue)},
    }
    if mpp is not None and kernel_mpp is not None:
        check_number("mpp", mpp, 0.01, 100)
        check_number("kernel_mpp", kernel_mpp, 0.01, 100)
        changed[Blur.name] = {"kernel_px": kernel_mpp / mpp}
    operations = (_changed(operation, changed.get(operation.name, {})) for operation in STRONG)
    return tuple(
        _within_limits(operation) if operation.name in limits else operation
        for operation in operations
        if operation.name in chosen
    )


class WeakStrongViews(Augmentation[PairParameters, tuple[torch.Tensor, torch.Tensor]]):
    """A weak view for the teacher and a strong view for the student (paper, section "Implementation details").

    Weak: a random crop stretched back to `size_px`, and a horizontal flip with probability one half, as one warp.
    Strong: the weak view's crop and flip, then `n_aug` of the ten operations of `STRONG`, in random order, each with
    its own magnitude. Row i of both views comes from row i of the batch. As in `PretrainAugmentation` all geometry is
    one warp, which comes first; the S patches of a sample have equal operations in equal order.

    Interpretation of the paper where it is ambiguous:
        * n_aug operations are sampled uniformly **without replacement**. RandAugment (Cubuk et al. 2020) samples with
          replacement; in one warp, a repeated operation would act as one of another strength (two flips cancel).
        * magnitude m is the distance from no change, the sign is random (`SignedRamp`): rotation ± 90° m / 10,
          scale 1 ± 0.2 m / 10, crop to 1 - 0.3 m / 10 of the area at a random place, noise of sigma 0.1 m / 10,
          brightness and contrast 1 ± 0.2 m / 10, stains ± 0.035 m / 10. Magnitude 10 gives the pretraining's limits.
        * affine "translation limit 0.01-0.1, scale limit 0.51-0.60, rotation 90°": limits at magnitude 1 and 10,
          read as in pretraining: shift ± 0.01 to ± 0.1 of the side per axis, magnification 1 ± 0.51 to 1 ± 0.60
          (0.4 to 1.6), rotation ± 90° m / 10. So affine is a strong operation even at magnitude 1.
        * "HSV intensity ratio between [-1, 1]": for saturation the ratio of Tellez et al. 2019, -1 is gray, +1 is
          S (2 - S); for hue, ± 1 is half a turn, the opposite hue (a full turn would change nothing). The signs are
          independent. At saturation -1, gray has no hue to change.
        * random crop: the area of `PretrainAugmentation`, aspect ratio within 3/4-4/3.

    Args:
        size_px: Side of the views, with `STRONG` at least 4 (the largest blur mirrors 3 pixels).
        n_aug: Operations of a strong view, at least 1.
        magnitudes: Smallest and largest, whole numbers in 1..10, sampled uniformly.
        crop_area: Smallest and largest area fraction of the base crop.
        operations: `STRONG`, or other `strong_operations`.

    Raises:
        InputError: A number is outside its range.
    """

    def __init__(
        self,
        size_px: int,
        n_aug: int,
        magnitudes: tuple[int, int] = (1, MAX_MAGNITUDE),
        crop_area: Range = (0.7, 1.0),
        operations: Sequence[Operation] = STRONG,
    ) -> None:
        super().__init__(size_px, operations)
        check_number("n_aug", n_aug, 1, len(self.operations))
        check_range("magnitudes", magnitudes, 1, MAX_MAGNITUDE)
        self.n_aug = n_aug
        self.magnitudes = magnitudes
        self.crop = Crop(Uniform(*crop_area))
        self.flip = Flip(prob=0.5)

    def randomize(self, num_samples: int, num_scales: int) -> PairParameters:
        """Parameters of one batch, sampled from `self.R`.

        Operations, signs and places depend neither on `n_aug` (fewer are the first of more) nor on `magnitudes`.
        """
        source = self._source(num_samples, num_scales)
        base = self.crop.sample(source) @ self.flip.sample(source)
        schedule = random_distinct_schedule(self.R, num_samples, len(self.operations), self.n_aug)
        lowest, highest = self.magnitudes
        # A fixed number of random values: RandomState.randint uses a variable number.
        uniform = self.R.uniform(size=(len(self.operations), *source.shape))
        magnitudes = lowest + np.floor(uniform * (highest + 1 - lowest))
        parameters = [
            operation.sample(replace(source, magnitudes=own))
            for operation, own in zip(self.operations, magnitudes, strict=True)
        ]
        seed = self._noise_seed()
        strong = ViewParameters.scheduled(self.operations, parameters, schedule, noise_seed=seed, base=base)
        return PairParameters(ViewParameters.of_geometry(base), strong)

    def apply(self, patches: torch.Tensor, parameters: PairParameters) -> tuple[torch.Tensor, torch.Tensor]:
        """Weak and strong view from sampled parameters.

        Args:
            patches: Shape (N, S, 3, H, H), uint8, not modified.
            parameters: Result of `randomize` with equal N and S.

        Returns:
            Two tensors, each of shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of `patches`.
        """
        weak, strong = render(patches, [parameters.weak, parameters.strong], self.size_px)
        return weak, strong


def _changed(operation: Any, changes: dict[str, Any]) -> Operation:
    return replace(operation, **changes)


def _within_limits(operation: Any) -> Operation:
    """An operation with uniform limits in place of signed values."""
    values = {field.name: getattr(operation, field.name) for field in fields(operation)}
    signed = {name: value for name, value in values.items() if type(value) is SignedRamp}
    limits = {name: RampLimit(value.start, value.end, value.center) for name, value in signed.items()}
    return _changed(operation, limits)
