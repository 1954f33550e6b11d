"""Brightness and contrast."""

from dataclasses import dataclass
from typing import ClassVar

import cv2
import numpy as np
import torch

from histo_monai.transforms.distributions import Quantity, Source, check_range
from histo_monai.transforms.operations.base import Photometric, per_image
from histo_monai.transforms.operations.buffers import Buffers, Pixels, clip, clip_at_one

# ITU-R BT.601 luma, as in torchvision and Pillow.
LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class BrightnessContrast(Photometric):
    """Image times brightness, clipped; then distances from its mean gray times contrast, clipped.

    Both as in torchvision and Pillow: a factor of 1 changes nothing, contrast 0 leaves the mean gray.
    """

    brightness: Quantity
    contrast: Quantity
    name: ClassVar[str] = "brightness_contrast"

    def __post_init__(self) -> None:
        check_range("brightness", self.brightness.bounds, 0, 2)
        check_range("contrast", self.contrast.bounds, 0, 2)

    def sample(self, source: Source) -> torch.Tensor:
        """Factors of brightness and contrast, not negative."""
        return torch.stack([self.brightness.sample(source), self.contrast.sample(source)], dim=-1)

    @staticmethod
    def with_opencv(buffers: Buffers, parameters: list[float], normals: Pixels) -> None:
        """Change one patch on the CPU (`Photometric.with_opencv`)."""
        pixels = buffers.pixels
        brightness, contrast = parameters
        if brightness > 1:
            pixels *= np.float32(brightness)
            clip_at_one(pixels)
            brightness = 1.0
        # Darkening needs no clipping, so brightness and contrast are one linear map.
        red, green, blue, _ = cv2.sumElems(pixels)
        gray = brightness * (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue) / (pixels.size / 3)
        cv2.addWeighted(pixels, contrast * brightness, pixels, 0, gray * (1 - contrast), dst=pixels)
        if contrast > 1:
            clip(pixels)

    @staticmethod
    def with_torch(images: torch.Tensor, parameters: torch.Tensor, normals: torch.Tensor) -> torch.Tensor:
        """The changed batch (`Photometric.with_torch`)."""
        brightness, contrast = parameters.unbind(1)
        brightened = (images * per_image(brightness, 3)).clamp_(0, 1)
        red, green, blue = brightened.mean(dim=(2, 3)).unbind(1)
        gray = LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue
        # Two passes in place: torch.addcmul does not vectorize a broadcast first argument on a CPU.
        stretched = brightened * per_image(contrast, 3)
        return stretched.add_(per_image(gray * (1 - contrast), 3)).clamp_(0, 1)
