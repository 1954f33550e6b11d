"""Weak and strong views of the same image: RandAugment on top of a shared base crop."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from histo_monai.transforms import geometry, operations
from histo_monai.transforms.augmentation import Augmentation, Range, check_number, check_range, render
from histo_monai.transforms.parameters import PairParameters, ViewParameters
from histo_monai.transforms.sequence import draw_distinct

OPERATIONS = operations.NAMES
"""What RandAugment draws from."""

MAX_MAGNITUDE = 10

# Per operation, its parameters (as in `OperationValues`): where magnitude 0 would lie, and the end at magnitude 10.
_RAMPS: dict[str, dict[str, Range]] = {
    "rotate": {"rotation_deg": (0.0, 90.0)},
    "scale": {"scale": (0.0, 0.2)},
    "affine": {
        "affine_rotation_deg": (0.0, 90.0),
        "affine_scale": (0.5, 0.6),
        "affine_shift_yx": (0.0, 0.1),
    },
    "flip": {},
    "crop": {"crop_area": (1.0, 0.7)},
    "noise": {"noise_sigma": (0.0, 0.1)},
    "hue_saturation": {"hue_turns": (0.0, 0.5), "saturation": (0.0, 1.0)},
    "brightness_contrast": {"brightness": (0.0, 0.2), "contrast": (0.0, 0.2)},
    "hed": {"hed_factors": (0.0, 0.035), "hed_shifts": (0.0, 0.035)},
}
_MILD_KERNEL, _MAX_KERNEL = 5, 7


def strengths(operation: str, magnitudes: ArrayLike) -> dict[str, NDArray]:
    """What an operation's parameters are at a magnitude, but for their random signs.

    Linear in the magnitude, and exactly the end of the paper's range at 10. The kernel of the blur is 5 up to
    magnitude 5 and 7 above; the flip has no strength.

    Args:
        operation: One of `OPERATIONS`.
        magnitudes: 1..10, any shape.

    Returns:
        By the names of `OperationValues`, each of the shape of `magnitudes`: the kernel and the cropped area
        themselves; of `scale`, `affine_scale`, `brightness` and `contrast` the departure from 1; of all others
        the departure from 0, in the units of `OperationValues`.
    """
    share = np.asarray(magnitudes) / MAX_MAGNITUDE
    if operation == "blur":
        return {"blur_kernel": np.where(share <= 0.5, _MILD_KERNEL, _MAX_KERNEL)}
    return {name: start * (1 - share) + end * share for name, (start, end) in _RAMPS[operation].items()}


class WeakStrongViews(Augmentation[PairParameters, tuple[torch.Tensor, torch.Tensor]]):
    """Two views of each image: a weak one for the teacher, a strong one for the student (paper, section
    "Implementation details", consistency training).

    Weak: a random crop stretched back to `size_px`, and a horizontal flip with probability one half: one warp.
    Strong: **the same crop and flip of the same image**, and then `n_aug` of the ten `OPERATIONS`, in random
    order, each with a magnitude of its own. Row i of both results comes from row i of the batch, and both warps
    are drawn from one base: nothing is shuffled that could be paired wrongly. As in `PretrainAugmentation` all
    geometry is one warp, which comes first; the S patches of a sample share operations and order.

    Reading of the paper where it leaves room:
        * n_aug operations are drawn uniformly **without replacement**. RandAugment (Cubuk et al. 2020) draws with
          replacement; here all geometry is one warp, and the same operation twice would mostly be that operation
          once, stronger or weaker than any magnitude says (two flips are none). The paper is silent.
        * magnitude m is the distance from no change, the sign is random (`strengths`): rotation ± 90° m / 10,
          scale 1 ± 0.2 m / 10, crop to 1 - 0.3 m / 10 of the area at a random place, noise of sigma 0.1 m / 10,
          brightness and contrast 1 ± 0.2 m / 10, stains ± 0.035 m / 10. Those of the pretraining at magnitude 10.
        * affine "translation limit 0.01-0.1, scale limit 0.51-0.60, rotation 90°": limits at magnitude 1 and 10,
          read as in pretraining: shift ± 0.01 to ± 0.1 of the side per axis, magnification 1 ± 0.51 to 1 ± 0.60
          (0.4 to 1.6), rotation ± 90° m / 10. So affine is a strong operation even at magnitude 1.
        * "HSV intensity ratio between [-1, 1]": of saturation the ratio of Tellez et al. 2019, -1 is grey, +1 is
          S (2 - S); of hue, ± 1 reaches the opposite hue, half a turn, the farthest there is (a full turn would
          change nothing). Their signs are separate; over all signs the change grows with m, though grey, where
          saturation -1 ends, has no hue left to turn.
        * random crop: the area of `PretrainAugmentation`, aspect ratio within 3/4-4/3.

    Args:
        size_px: Side of the views, at least 4 (the largest blur mirrors 3 pixels).
        n_aug: Operations of a strong view, 1..10.
        magnitudes: Smallest and largest, whole numbers in 1..10, drawn uniformly.
        crop_area: Smallest and largest fraction of the area in the base crop.

    Raises:
        ValueError: A number is outside its range.
    """

    def __init__(
        self,
        size_px: int,
        n_aug: int,
        magnitudes: tuple[int, int] = (1, MAX_MAGNITUDE),
        crop_area: Range = (0.7, 1.0),
    ) -> None:
        super().__init__(size_px)
        check_number("size_px", size_px, _MAX_KERNEL // 2 + 1, 1 << 16)
        check_number("n_aug", n_aug, 1, len(OPERATIONS))
        check_range("magnitudes", magnitudes, 1, MAX_MAGNITUDE)
        check_range("crop_area", crop_area, 0.01, 1)
        self.n_aug = n_aug
        self.magnitudes = magnitudes
        self.crop_area = crop_area

    def randomize(self, num_samples: int, num_scales: int) -> PairParameters:
        """Draws the parameters of one batch from `self.R`: see `Augmentation.randomize`.

        Operations, signs and places depend neither on `n_aug` (fewer are the first of more) nor on `magnitudes`.
        """
        shape = (num_samples, num_scales)
        crop = self._crop_matrix(self.crop_area, shape)
        base = crop @ geometry.flip_matrix(torch.from_numpy(self.R.uniform(size=shape) < 0.5))
        schedule = draw_distinct(self.R, num_samples, len(OPERATIONS), self.n_aug)
        values = self._draw_values(shape)
        strong = values.scheduled(schedule, self._noise_seed(), _MAX_KERNEL, base)
        return PairParameters(ViewParameters.of_geometry(base), strong)

    def apply(self, patches: torch.Tensor, drawn: PairParameters) -> tuple[torch.Tensor, torch.Tensor]:
        """Both views with parameters that are drawn already.

        Args:
            patches: Shape (N, S, 3, H, H), uint8, not modified.
            drawn: From `randomize` with the same N and S.

        Returns:
            Weak and strong, each of shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of `patches`.
        """
        return render(patches, drawn.weak, self.size_px), render(patches, drawn.strong, self.size_px)

    def _draw_values(self, shape: tuple[int, int]) -> operations.OperationValues:
        lowest, highest = self.magnitudes
        # One draw of a fixed length: RandomState.randint takes as many as it needs.
        uniform = self.R.uniform(size=(len(OPERATIONS), *shape))
        magnitudes = lowest + np.floor(uniform * (highest + 1 - lowest))
        departure = {
            name: torch.from_numpy(value)
            for operation, own in zip(OPERATIONS, magnitudes, strict=True)
            for name, value in strengths(operation, own).items()
        }

        def signed(name: str, *axes: int) -> torch.Tensor:
            sign = np.where(self.R.uniform(size=(*shape, *axes)) < 0.5, -1.0, 1.0)
            return departure[name].reshape(*shape, *[1] * len(axes)) * torch.from_numpy(sign)

        return operations.OperationValues(
            rotation_deg=signed("rotation_deg"),
            scale=1 + signed("scale"),
            affine_rotation_deg=signed("affine_rotation_deg"),
            affine_scale=1 + signed("affine_scale"),
            affine_shift_yx=signed("affine_shift_yx", 2),
            crop_area=departure["crop_area"],
            crop_stretch=self._uniform(-1, 1, shape),
            crop_position_yx=self._uniform(0, 1, (*shape, 2)),
            noise_sigma=signed("noise_sigma"),
            noise_start=self._noise_start(shape),
            hue_turns=signed("hue_turns"),
            saturation=signed("saturation"),
            brightness=1 + signed("brightness"),
            contrast=1 + signed("contrast"),
            blur_kernel=departure["blur_kernel"],
            hed_factors=signed("hed_factors", 3),
            hed_shifts=signed("hed_shifts", 3),
        )
