"""What orders triples without learning: one number of each patch, which falls or rises with magnification.

A network that orders triples is to be read beside these: a pretext that one number solves teaches little tissue.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from histo_monai.transfer import sent

_LAPLACIAN = ((0.0, 1.0, 0.0), (1.0, -4.0, 1.0), (0.0, 1.0, 0.0))


def contrast(patches: torch.Tensor) -> torch.Tensor:
    """Standard deviation of gray, the mean of R, G and B. Shape (..., 3, P, P) -> (...)."""
    return patches.float().mean(dim=-3).std(dim=(-2, -1), correction=0)


def sharpness(patches: torch.Tensor) -> torch.Tensor:
    """Mean absolute Laplacian of gray, inside the edge, in parts of the contrast. Shape (..., 3, P, P) -> (...)."""
    gray = patches.float().mean(dim=-3)
    kernel = sent(torch.tensor(_LAPLACIAN), patches.device).expand(1, 1, -1, -1)
    detail = F.conv2d(gray.flatten(0, -3).unsqueeze(1), kernel).abs().mean(dim=(1, 2, 3))
    return detail.unflatten(0, patches.shape[:-3]) / contrast(patches).clamp(min=1e-6)


def ordered_by_one_number(triples: torch.Tensor) -> dict[str, torch.Tensor]:
    """Whether detail lies closer to the pixel, or contrast is lower, the coarser a patch of a triple is.

    Args:
        triples: Shape (n, 3, 3, P, P); axis 1 is resolution, finest first.

    Returns:
        "by_sharpness" and "by_contrast", each Shape (n,): 1 where the number alone puts the triple in order, or 0.
    """
    rises = {"by_sharpness": sharpness(triples), "by_contrast": -contrast(triples)}
    return {name: (number.diff(dim=1) > 0).all(dim=1).float() for name, number in rises.items()}
