"""Weak and strong views of the same image: RandAugment on top of a shared base crop."""

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from histo_monai.transforms.augmentation import Augmentation, render
from histo_monai.transforms.draws import (
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
from histo_monai.transforms.sequence import draw_distinct
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
"""What RandAugment draws from: the distance from no change grows linearly with the magnitude, up to the end of the
paper's range at 10; the kernel of the blur is 5 up to magnitude 5 and 7 above; the flip has no strength."""

KERNEL_MPP = 0.25
"""µm/px of the paper's patches, in whose pixels it counts the kernel of its blur."""


def strong_operations(
    names: Sequence[str] | None = None,
    *,
    limits: Collection[str] = (),
    affine_scale: Range = (0.5, 0.6),
    hue: Range = (0.0, 0.5),
    mpp: float | None = None,
    kernel_mpp: float | None = KERNEL_MPP,
) -> tuple[Operation, ...]:
    """`STRONG` with other settings; without any, `STRONG` itself.

    Args:
        names: Which of the operations, in any order; None for all ten.
        limits: Names of operations whose signed magnitudes are limits, within which values are drawn uniformly
            (`RampLimit`), as in the pretraining; those of others are the values themselves, with a random sign.
        affine_scale: Departure of the affine magnification from 1, where magnitude 0 would lie and at 10.
        hue: The same of hue, fraction of a full turn, half a turn at most.
        mpp: µm/px of the views; None: unknown.
        kernel_mpp: µm/px at which the kernel of the blur counts, so that it is the same in µm at any `mpp`. The kernel
            counts pixels of the views where this or `mpp` is None.

    Raises:
        InputError: A name is not that of an operation, or a number is outside its range.
    """
    known = {operation.name: operation for operation in STRONG}
    chosen = tuple(known) if names is None else tuple(names)
    for name in (*chosen, *limits):
        if name not in known:
            raise InputError(f"strong operations: one of {', '.join(known)} expected, got {name}")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"strong operations: each once expected, got {', '.join(chosen)}")
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
    """Two views of each image: a weak one for the teacher, a strong one for the student (paper, section
    "Implementation details", consistency training).

    Weak: a random crop stretched back to `size_px`, and a horizontal flip with probability one half: one warp.
    Strong: **the same crop and flip of the same image**, and then `n_aug` of the ten operations of `STRONG`, in random
    order, each with a magnitude of its own. Row i of both results comes from row i of the batch, and both warps
    are drawn from one base: nothing is shuffled that could be paired wrongly. As in `PretrainAugmentation` all
    geometry is one warp, which comes first; the S patches of a sample share operations and order.

    Reading of the paper where it leaves room:
        * n_aug operations are drawn uniformly **without replacement**. RandAugment (Cubuk et al. 2020) draws with
          replacement; here all geometry is one warp, and the same operation twice would mostly be that operation
          once, stronger or weaker than any magnitude says (two flips are none). The paper is silent.
        * magnitude m is the distance from no change, the sign is random (`SignedRamp`): rotation ± 90° m / 10,
          scale 1 ± 0.2 m / 10, crop to 1 - 0.3 m / 10 of the area at a random place, noise of sigma 0.1 m / 10,
          brightness and contrast 1 ± 0.2 m / 10, stains ± 0.035 m / 10. Those of the pretraining at magnitude 10.
        * affine "translation limit 0.01-0.1, scale limit 0.51-0.60, rotation 90°": limits at magnitude 1 and 10,
          read as in pretraining: shift ± 0.01 to ± 0.1 of the side per axis, magnification 1 ± 0.51 to 1 ± 0.60
          (0.4 to 1.6), rotation ± 90° m / 10. So affine is a strong operation even at magnitude 1.
        * "HSV intensity ratio between [-1, 1]": of saturation the ratio of Tellez et al. 2019, -1 is gray, +1 is
          S (2 - S); of hue, ± 1 reaches the opposite hue, half a turn, the farthest there is (a full turn would
          change nothing). Their signs are separate; over all signs the change grows with m, though gray, where
          saturation -1 ends, has no hue left to turn.
        * random crop: the area of `PretrainAugmentation`, aspect ratio within 3/4-4/3.

    Args:
        size_px: Side of the views, with `STRONG` at least 4 (the largest blur mirrors 3 pixels).
        n_aug: Operations of a strong view, from 1 to all there are.
        magnitudes: Smallest and largest, whole numbers in 1..10, drawn uniformly.
        crop_area: Smallest and largest fraction of the area in the base crop.
        operations: What strong views are drawn from: `STRONG`, or other `strong_operations`.

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
        """Draws the parameters of one batch from `self.R`: see `Augmentation.randomize`.

        Operations, signs and places depend neither on `n_aug` (fewer are the first of more) nor on `magnitudes`.
        """
        source = self._source(num_samples, num_scales)
        base = self.crop.draw(source) @ self.flip.draw(source)
        schedule = draw_distinct(self.R, num_samples, len(self.operations), self.n_aug)
        lowest, highest = self.magnitudes
        # One draw of a fixed length: RandomState.randint takes as many as it needs.
        uniform = self.R.uniform(size=(len(self.operations), *source.shape))
        magnitudes = lowest + np.floor(uniform * (highest + 1 - lowest))
        drawn = [
            operation.draw(replace(source, magnitudes=own))
            for operation, own in zip(self.operations, magnitudes, strict=True)
        ]
        seed = self._noise_seed()
        strong = ViewParameters.scheduled(self.operations, drawn, schedule, noise_seed=seed, base=base)
        return PairParameters(ViewParameters.of_geometry(base), strong)

    def apply(self, patches: torch.Tensor, drawn: PairParameters) -> tuple[torch.Tensor, torch.Tensor]:
        """Both views with parameters that are drawn already.

        Args:
            patches: Shape (N, S, 3, H, H), uint8, not modified.
            drawn: From `randomize` with the same N and S.

        Returns:
            Weak and strong, each of shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of `patches`.
        """
        weak, strong = render(patches, [drawn.weak, drawn.strong], self.size_px)
        return weak, strong


def _changed(operation: Any, changes: dict[str, Any]) -> Operation:
    return replace(operation, **changes)


def _within_limits(operation: Any) -> Operation:
    """The operation with limits instead of signed values."""
    values = {field.name: getattr(operation, field.name) for field in fields(operation)}
    signed = {name: value for name, value in values.items() if type(value) is SignedRamp}
    limits = {name: RampLimit(value.start, value.end, value.center) for name, value in signed.items()}
    return _changed(operation, limits)
