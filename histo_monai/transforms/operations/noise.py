"""Gaussian noise of every pixel and channel."""

from dataclasses import dataclass
from typing import ClassVar

import cv2
import torch

from histo_monai.transforms.distributions import Quantity, Source, check_range
from histo_monai.transforms.operations.base import Photometric, per_image
from histo_monai.transforms.operations.buffers import Buffers, Pixels, clip

# Least pool of noise per batch; smaller ones would overlap too often in batches of small patches.
MIN_POOL = 1 << 18


def pool_length(size_px: int) -> int:
    """Length of a batch's pool of normals: below 2 ** 24 up to 2048 px, so float32 stores offsets exactly."""
    return max(MIN_POOL, 4 * size_px**2)


@dataclass(frozen=True)
class Noise(Photometric):
    """Independent normal noise, clipped.

    Sampling normals is the most expensive step, so a batch has one pool, from which each image uses a random stretch.
    Values within an image are independent; images with overlapping stretches have equal values at other places.

    Args:
        sigma: Standard deviation, fraction of full scale; a negative one inverts the noise.
    """

    sigma: Quantity
    name: ClassVar[str] = "noise"
    needs_normals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_range("noise_sigma", self.sigma.bounds, -1, 1)

    def sample(self, source: Source) -> torch.Tensor:
        """Standard deviation, and start of the image's stretch of the pool, a whole number."""
        sigma = self.sigma.sample(source)
        last = pool_length(source.size_px) - 3 * source.size_px**2
        start = torch.from_numpy(source.random.randint(0, last + 1, source.shape)).to(torch.float64)
        return torch.stack([sigma, start], dim=-1)

    @staticmethod
    def with_opencv(buffers: Buffers, parameters: list[float], normals: Pixels) -> None:
        """Change one patch on the CPU (`Photometric.with_opencv`)."""
        sigma, start = parameters[0], int(parameters[1])
        # The pool is cut into planes, as in `with_torch`.
        planes = normals[start : start + buffers.pixels.size].reshape(3, *buffers.pixels.shape[:2])
        cv2.merge(list(planes), dst=buffers.spare)
        cv2.scaleAdd(buffers.spare, sigma, buffers.pixels, dst=buffers.pixels)
        clip(buffers.pixels)

    @staticmethod
    def with_torch(images: torch.Tensor, parameters: torch.Tensor, normals: torch.Tensor) -> torch.Tensor:
        """The changed batch (`Photometric.with_torch`)."""
        sigmas, starts = parameters.unbind(1)
        noise = (
            normals.unfold(0, images[0].numel(), 1).index_select(0, starts.to(torch.int64)).view_as(images)
        )
        return noise.mul_(per_image(sigmas, 3)).add_(images).clamp_(0, 1)
