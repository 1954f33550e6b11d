"""Gaussian blur."""

import math
from dataclasses import dataclass
from typing import ClassVar

import cv2
import numpy as np
import torch
import torch.nn.functional as F

from histo_monai.transforms.distributions import Quantity, Source
from histo_monai.transforms.operations.base import Photometric, per_image
from histo_monai.transforms.operations.buffers import Buffers, Pixels, clip_at_one


@dataclass(frozen=True)
class Blur(Photometric):
    """Gaussian blur with a separable kernel; the border is mirrored without repeating the edge.

    Args:
        kernel: Side of the kernel, odd, in kernel pixels.
        kernel_px: View pixels per kernel pixel: 1 blurs alike at any magnification; 0.25 / mpp gives a kernel defined
            at 0.25 µm/px the same width in µm in views of any mpp.

    Raises:
        ValueError: `kernel_px` is not positive.
    """

    kernel: Quantity
    kernel_px: float = 1.0
    name: ClassVar[str] = "blur"

    def __post_init__(self) -> None:
        if not 0 < self.kernel_px < math.inf:
            raise ValueError(f"kernel_px: a positive number expected, got {self.kernel_px}")

    @property
    def min_size_px(self) -> int:
        """Smallest side of a view: the border is mirrored over the kernel's radius."""
        return kernel_radius(self._max_kernel, self.kernel_px) + 1

    def sample(self, source: Source) -> torch.Tensor:
        """Right half of the kernel (`gaussian_weights`)."""
        return gaussian_weights(self.kernel.sample(source), self._max_kernel, self.kernel_px)

    @property
    def _max_kernel(self) -> int:
        return int(self.kernel.bounds[1])

    @staticmethod
    def with_opencv(buffers: Buffers, parameters: list[float], normals: Pixels) -> None:
        """Blur one patch on the CPU (`Photometric.with_opencv`)."""
        half = parameters[: len(parameters) - _zeros_at_end(parameters)]
        if len(half) == 1:
            return
        kernel = np.array([*half[:0:-1], *half], np.float32)
        border = cv2.BORDER_REFLECT_101
        cv2.sepFilter2D(buffers.pixels, -1, kernel, kernel, dst=buffers.spare, borderType=border)
        buffers.swap()
        # Rounded weights may sum to slightly more than one.
        clip_at_one(buffers.pixels)

    @staticmethod
    def with_torch(images: torch.Tensor, parameters: torch.Tensor, normals: torch.Tensor) -> torch.Tensor:
        """The blurred batch (`Photometric.with_torch`)."""
        radius = parameters.shape[1] - 1
        padded = F.pad(images, (radius, radius, radius, radius), mode="reflect")
        blurred = _blur_along(_blur_along(padded, parameters, radius, dim=3), parameters, radius, dim=2)
        return blurred.clamp_max_(1)


def _zeros_at_end(weights: list[float]) -> int:
    num = 0
    while not weights[-1 - num]:
        num += 1
    return num


def gaussian_weights(kernels: torch.Tensor, max_kernel: int, kernel_px: float = 1.0) -> torch.Tensor:
    """Right halves of normalized Gaussian kernels, from the center outwards.

    The standard deviation follows OpenCV: 0.3 ((k - 1) / 2 - 1) + 0.8 kernel pixels for size k.

    Args:
        kernels: Odd, from 1 to `max_kernel`, shape (...).
        max_kernel: Odd.

    Returns:
        Shape (..., radius + 1), float64, with the `kernel_radius` of the largest; zero beyond an image's own radius.
    """
    offsets = torch.arange(kernel_radius(max_kernel, kernel_px) + 1, device=kernels.device)
    half = (kernels[..., None].to(torch.float64) - 1) / 2
    sigma = (0.3 * (half - 1) + 0.8) * kernel_px
    inside = offsets <= (half * kernel_px - _ROUNDING).ceil()
    weights = torch.exp(-0.5 * (offsets / sigma) ** 2) * inside
    return weights / (2 * weights.sum(-1, keepdim=True) - weights[..., :1])


def kernel_radius(kernel: int, kernel_px: float) -> int:
    """Radius of a kernel in view pixels."""
    return math.ceil((kernel - 1) / 2 * kernel_px - _ROUNDING)


# A radius of 3 times 0.1 / 0.3 is one pixel, not two.
_ROUNDING = 1e-9


def _blur_along(padded: torch.Tensor, weights: torch.Tensor, radius: int, dim: int) -> torch.Tensor:
    length = padded.shape[dim] - 2 * radius
    blurred = padded.narrow(dim, radius, length) * per_image(weights[:, 0], 3)
    for offset in range(1, radius + 1):
        both = padded.narrow(dim, radius - offset, length) + padded.narrow(dim, radius + offset, length)
        blurred.addcmul_(both, per_image(weights[:, offset], 3))
    return blurred
