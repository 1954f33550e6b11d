"""Fixed views of patches: one flip, three rotations, two stain strengths; equal for every patch."""

from __future__ import annotations

from collections.abc import Callable

import torch

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
