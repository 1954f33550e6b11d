"""Gaussian noise of every pixel and channel."""

from dataclasses import dataclass
from typing import ClassVar

import cv2
import torch

from histo_monai.transforms.draws import Quantity, Source, check_range
from histo_monai.transforms.operations.base import Photometric, per_image
from histo_monai.transforms.operations.buffers import Buffers, Pixels, clip

# One noise pool serves a batch; smaller ones would overlap too often in batches of small patches.
MIN_POOL = 1 << 18


def pool_length(size_px: int) -> int:
    """Normals in the pool of a batch: below 2 ** 24 for any patch of up to 2048 px, so that float32 carries offsets."""
    return max(MIN_POOL, 4 * size_px**2)


@dataclass(frozen=True)
class Noise(Photometric):
    """Adds independent normal values and clips.

    Fresh normals are the dearest part of a whole augmentation, so a batch shares one pool of them: each image
    takes a stretch of its own. Within an image all values are independent; two images whose stretches overlap
    share values at other places.

    Args:
        sigma: Standard deviation, fraction of full scale; a negative one turns the noise's sign.
    """

    sigma: Quantity
    name: ClassVar[str] = "noise"
    needs_normals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_range("noise_sigma", self.sigma.bounds, -1, 1)

    def draw(self, source: Source) -> torch.Tensor:
        """Columns: standard deviation; where the image's stretch of the pool begins, a whole number."""
        sigma = self.sigma.draw(source)
        last = pool_length(source.size_px) - 3 * source.size_px**2
        start = torch.from_numpy(source.random.randint(0, last + 1, source.shape)).to(torch.float64)
        return torch.stack([sigma, start], dim=-1)

    @staticmethod
    def with_opencv(buffers: Buffers, parameters: list[float], normals: Pixels) -> None:
        """See `Photometric.with_opencv`."""
        sigma, start = parameters[0], int(parameters[1])
        # The pool is cut into planes, as in `with_torch`.
        planes = normals[start : start + buffers.pixels.size].reshape(3, *buffers.pixels.shape[:2])
        cv2.merge(list(planes), dst=buffers.spare)
        cv2.scaleAdd(buffers.spare, sigma, buffers.pixels, dst=buffers.pixels)
        clip(buffers.pixels)

    @staticmethod
    def with_torch(images: torch.Tensor, parameters: torch.Tensor, normals: torch.Tensor) -> torch.Tensor:
        """See `Photometric.with_torch`."""
        sigmas, starts = parameters.unbind(1)
        noise = (
            normals.unfold(0, images[0].numel(), 1).index_select(0, starts.to(torch.int64)).view_as(images)
        )
        return noise.mul_(per_image(sigmas, 3)).add_(images).clamp_(0, 1)
