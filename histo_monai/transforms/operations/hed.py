"""Stain perturbation in hematoxylin-eosin-DAB (HED) space."""

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import cv2
import numpy as np
import torch

from histo_monai.transforms.distributions import Quantity, Source
from histo_monai.transforms.operations.base import Photometric
from histo_monai.transforms.operations.buffers import Buffers, Pixels, clip_at_one
from histo_monai.utils.stains import DARKEST, RGB_FROM_HED


@dataclass(frozen=True)
class Hed(Photometric):
    """Relative and absolute change of each stain's concentration (Tellez et al.).

    Values below half a gray level count as half a gray level; densities below 0 are clear glass.

    Args:
        factor: Relative change of H, E and D.
        shift: Absolute change, optical density (base 10).
    """

    factor: Quantity
    shift: Quantity
    name: ClassVar[str] = "hed"

    def sample(self, source: Source) -> torch.Tensor:
        """9 numbers of the map and 3 of the offset (`hed_map`)."""
        factors, shifts = self.factor.sample(source, 3), self.shift.sample(source, 3)
        linear, offset = hed_map(factors.flatten(0, 1), shifts.flatten(0, 1))
        return torch.cat([linear.flatten(1), offset.flatten(1)], dim=1).unflatten(0, source.shape)

    @staticmethod
    def with_opencv(buffers: Buffers, parameters: list[float], normals: Pixels) -> None:
        """Change one patch on the CPU (`Photometric.with_opencv`)."""
        linear, offset = np.array(parameters[:9]).reshape(3, 3), np.array(parameters[9:])[:, None]
        # `hed_map` uses base 2, OpenCV base e.
        base_e = math.log(2) * np.concatenate([linear, offset], axis=1)
        np.clip(buffers.pixels, DARKEST, 1, out=buffers.pixels)
        cv2.log(buffers.pixels, dst=buffers.pixels)
        cv2.transform(buffers.pixels, base_e.astype(np.float32), dst=buffers.spare)
        cv2.exp(buffers.spare, dst=buffers.spare)
        buffers.swap()
        clip_at_one(buffers.pixels)

    @staticmethod
    def with_torch(images: torch.Tensor, parameters: torch.Tensor, normals: torch.Tensor) -> torch.Tensor:
        """The changed batch (`Photometric.with_torch`)."""
        linear, offset = parameters.split([9, 3], dim=1)
        logs = images.flatten(2).clamp_min(DARKEST).sub_(1).log1p_()
        mapped = torch.baddbmm(offset[:, :, None], linear.unflatten(1, (3, 3)), logs)
        return mapped.exp2_().clamp_max_(1.0).view_as(images)


def hed_map(factors: torch.Tensor, shifts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The affine map of logarithms of intensity that perturbs stain concentrations.

    Densities are d = -log10(I) = Mᵀ c for concentrations c. With c' = (1 + factor) c + shift,
    d' = Mᵀ diag(1 + factor) M⁻ᵀ d + Mᵀ shift: one 3 × 3 map and one offset, no unmixing of pixels.

    Args:
        factors: Relative change of H, E and D, shape (N, 3).
        shifts: Absolute change of H, E and D, optical density (base 10), shape (N, 3).

    Returns:
        The map, shape (N, 3, 3), and the offset, shape (N, 3, 1): log2 I' = map · ln I + offset. (From base e to
        base 2, because log1p and exp2 are the fastest of their kind on a CPU.)
    """
    rgb_from_hed, hed_from_rgb = (matrix.to(factors) for matrix in _mixing())
    linear = rgb_from_hed @ ((1 + factors)[:, :, None] * hed_from_rgb)
    offset = rgb_from_hed @ shifts[:, :, None]
    return linear / math.log(2), -math.log2(10) * offset


@cache
def _mixing() -> tuple[torch.Tensor, torch.Tensor]:
    """Densities of red, green and blue from those of the stains, and the inverse; (3, 3), float64."""
    rgb_from_hed = torch.tensor(RGB_FROM_HED, dtype=torch.float64).T
    return rgb_from_hed, torch.linalg.inv(rgb_from_hed)
