"""Stain perturbation in haematoxylin-eosin-DAB (HED) space."""

import math

import torch

# Optical densities of haematoxylin, eosin and DAB in red, green and blue: Ruifrok & Johnston 2001, rows as in
# scikit-image's `rgb_from_hed`.
RGB_FROM_HED = ((0.65, 0.70, 0.29), (0.07, 0.99, 0.11), (0.27, 0.57, 0.78))

# Eight bits cannot tell anything below half a grey level from black: it limits the density to 2.7.
DARKEST = 0.5 / 255


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
    rgb_from_hed = torch.tensor(RGB_FROM_HED, dtype=torch.float64).T
    hed_from_rgb = torch.linalg.inv(rgb_from_hed)
    rgb_from_hed, hed_from_rgb = rgb_from_hed.to(factors), hed_from_rgb.to(factors)
    linear = rgb_from_hed @ ((1 + factors)[:, :, None] * hed_from_rgb)
    offset = rgb_from_hed @ shifts[:, :, None]
    return linear / math.log(2), -math.log2(10) * offset


def perturb_hed(images: torch.Tensor, linear: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Applies a `hed_map` to images.

    Args:
        images: Shape (N, 3, H, W), float32, 0..1. Values below half a grey level count as half a grey level.
        linear: Shape (N, 3, 3).
        offset: Shape (N, 3, 1).

    Returns:
        Shape (N, 3, H, W), float32, 0..1; densities below 0 are clear glass (1).
    """
    logs = images.flatten(2).clamp_min(DARKEST).sub_(1).log1p_()
    return torch.baddbmm(offset, linear, logs).exp2_().clamp_max_(1.0).view_as(images)
