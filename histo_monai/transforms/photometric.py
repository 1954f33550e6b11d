"""The photometric operations of a policy, as `sequence.apply_in_sequence` takes them: parameters as columns."""

import torch

from histo_monai.transforms import intensity, stain
from histo_monai.transforms.sequence import Operation

# The parameters' columns: noise - sigma, start in the pool; hue_saturation - turns, ratio; brightness_contrast - two
# factors, brightness first; blur - half kernel (`intensity.gaussian_weights`); hed - the 9 numbers of the map, the 3
# of the offset (`stain.hed_map`).
NAMES = ("noise", "hue_saturation", "brightness_contrast", "blur", "hed")


def operations(noise_pool: torch.Tensor) -> tuple[Operation, ...]:
    """The operations in the order of `NAMES`, for `batched`; `one_by_one` has its own, tested against these.

    Args:
        noise_pool: Standard normal values on the images' device (`intensity.add_noise`).

    Returns:
        One callable per name: (images (n, 3, H, W), parameters (n, k)) -> images.
    """

    def noise(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
        sigmas, starts = parameters.unbind(1)
        return intensity.add_noise(images, sigmas, starts.to(torch.int64), noise_pool)

    return noise, _hue_saturation, _brightness_contrast, intensity.gaussian_blur, _hed


def _hue_saturation(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    return intensity.adjust_hue_saturation(images, parameters[:, 0], parameters[:, 1])


def _brightness_contrast(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    brightened = intensity.adjust_brightness(images, parameters[:, 0])
    return intensity.adjust_contrast(brightened, parameters[:, 1])


def _hed(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    linear, offset = parameters.split([9, 3], dim=1)
    return stain.perturb_hed(images, linear.unflatten(1, (3, 3)), offset[:, :, None])
