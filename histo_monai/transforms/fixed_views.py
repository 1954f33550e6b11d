"""Views without randomness: unaugmented; and one flip, three rotations, two stain strengths, equal for every patch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from histo_monai.transforms import geometry
from histo_monai.utils.stains import DARKEST

_STRONG, _WEAK = 1.2, 0.8


def _with_density(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Multiply the optical density of every stain: intensity to the power of the factor (Beer and Lambert)."""
    return lambda patches: patches.clamp(min=DARKEST).pow(factor)


FIXED_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "flip": lambda patches: patches.flip(-1),
    "rotate_90": lambda patches: patches.rot90(1, (-2, -1)),
    "rotate_180": lambda patches: patches.rot90(2, (-2, -1)),
    "rotate_270": lambda patches: patches.rot90(3, (-2, -1)),
    "strong_stain": _with_density(_STRONG),
    "weak_stain": _with_density(_WEAK),
}
"""Name -> function of patches (n, 3, P, P), float32, 0..1. `flip` mirrors left and right; rotations turn left."""


def unaugmented_view(patches: torch.Tensor, size_px: int) -> torch.Tensor:
    """The view without augmentation: area-correct resize to `size_px`, 0..1.

    Args:
        patches: Shape (N, S, 3, H, H), uint8.

    Returns:
        Shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of `patches`.

    Raises:
        ValueError: `patches` has another shape or type.
    """
    geometry.check_patches(patches)
    flat = patches.flatten(0, 1)
    if flat.shape[-1] == size_px:
        view = flat.to(torch.float32).mul_(1 / 255)
    else:
        matrices = torch.eye(3, dtype=torch.float64).expand(len(flat), 3, 3)
        view = geometry.warp(flat, matrices, size_px)
    return view.unflatten(0, patches.shape[:2])
