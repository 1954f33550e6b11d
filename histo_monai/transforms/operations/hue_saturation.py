"""Hue and saturation."""

from dataclasses import dataclass
from typing import ClassVar

import cv2
import numpy as np
import torch

from histo_monai.transforms.distributions import Quantity, Source, check_range
from histo_monai.transforms.operations.base import Photometric, per_image
from histo_monai.transforms.operations.buffers import Buffers, Pixels, clip_at_one

# Keeps black and gray, which have no hue, from dividing by zero.
_TINY = 1e-9


@dataclass(frozen=True)
class HueSaturation(Photometric):
    """Shift of hue and saturation in HSV, with constant value.

    Hue rotates by a fraction of the circle. The saturation ratio r follows Tellez et al. 2019, the paper's source:
    S' = S (1 + r) for r < 0, so -1 is gray, and S' = S (1 + r (1 - S)) for r > 0, so +1 stays within 0..1.

    Args:
        hue: Fraction of a full turn.
        saturation: Ratio, -1..1.
    """

    hue: Quantity
    saturation: Quantity
    name: ClassVar[str] = "hue_saturation"

    def __post_init__(self) -> None:
        check_range("saturation", self.saturation.bounds, -1, 1)

    def sample(self, source: Source) -> torch.Tensor:
        """Hue in full turns, and saturation ratio, -1..1."""
        return torch.stack([self.hue.sample(source), self.saturation.sample(source)], dim=-1)

    @staticmethod
    def with_opencv(buffers: Buffers, parameters: list[float], normals: Pixels) -> None:
        """Change one patch on the CPU (`Photometric.with_opencv`)."""
        turns, ratio = parameters
        # OpenCV takes no negative hue. Less saturation is a factor, so it fits into the linear map.
        less = 1 + min(ratio, 0)
        linear = np.array([(1, 0, 0, turns % 1 * 360), (0, less, 0, 0), (0, 0, 1, 0)], np.float32)
        cv2.cvtColor(buffers.pixels, cv2.COLOR_RGB2HSV, dst=buffers.spare)
        cv2.transform(buffers.spare, linear, dst=buffers.pixels)
        if ratio > 0:
            saturation, factor, _ = buffers.planes
            cv2.extractChannel(buffers.pixels, 1, saturation)
            np.multiply(saturation, np.float32(-ratio), out=factor)
            factor += np.float32(1 + ratio)
            saturation *= factor
            clip_at_one(saturation)
            cv2.insertChannel(saturation, buffers.pixels, 1)
        cv2.cvtColor(buffers.pixels, cv2.COLOR_HSV2RGB, dst=buffers.spare)
        buffers.swap()

    @staticmethod
    def with_torch(images: torch.Tensor, parameters: torch.Tensor, normals: torch.Tensor) -> torch.Tensor:
        """Exact, without the usual six branches.

        Write a color as min + chroma · (x_r, x_g, x_b), where one x is 1 and one is 0. Its distance from red along the
        hue hexagon is t = 1 + x_g + x_b - x_r, in 0..3 (60° each), on the side of the sign of g - b. And back:
        x_r = clamp(2 - t, 0, 1), the larger of x_g and x_b is min(t, 1), and their sum t - 1 + x_r.
        """
        hue_turns, ratio = parameters.unbind(1)
        red, green, blue = images.unbind(1)
        value = torch.maximum(red, green)
        value = torch.maximum(value, blue, out=value).clamp_min_(_TINY)
        lowest = torch.minimum(red, green)
        lowest = torch.minimum(lowest, blue, out=lowest)
        chroma = (value - lowest).clamp_min_(_TINY)
        distance = (green + blue).sub_(red).sub_(lowest).div_(chroma).add_(1)
        angle = distance.copysign_(green - blue).add_(per_image(hue_turns * 6))
        angle.sub_(torch.div(angle, 6, out=lowest).round_(), alpha=6)

        saturated = torch.div(chroma, value).mul_(per_image(-ratio.clamp_min(0)))
        chroma.mul_(saturated.add_(per_image(1 + ratio)))
        lowest = torch.sub(value, chroma, out=saturated)

        distance = angle.abs()
        red_below_value = (1 - distance).clamp_(-1, 0)
        mean = (distance + red_below_value).mul_(0.5)
        deviation = distance.clamp_max_(1).sub_(mean).copysign_(angle)
        shifted = torch.empty_like(images)
        torch.addcmul(value, chroma, red_below_value, out=shifted[:, 0])
        torch.addcmul(lowest, chroma, torch.add(mean, deviation, out=angle), out=shifted[:, 1])
        torch.addcmul(lowest, chroma, mean.sub_(deviation), out=shifted[:, 2])
        return shifted.clamp_(0, 1)
