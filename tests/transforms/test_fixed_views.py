"""Fixed views against NumPy and the law of Beer and Lambert."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from histo_monai.transforms.fixed_views import FIXED_VIEWS

PATCHES = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.05
MOVED = {
    "flip": np.fliplr,
    "rotate_90": np.rot90,
    "rotate_180": lambda image: np.rot90(image, 2),
    "rotate_270": lambda image: np.rot90(image, 3),
}


@pytest.mark.parametrize("name", MOVED)
def test_geometry_is_that_of_numpy(name: str) -> None:
    for patch, view in zip(PATCHES, FIXED_VIEWS[name](PATCHES), strict=True):
        for channel, seen in zip(patch, view, strict=True):
            np.testing.assert_array_equal(seen.numpy(), MOVED[name](channel.numpy()))


@pytest.mark.parametrize(("name", "factor"), [("strong_stain", 1.2), ("weak_stain", 0.8)])
def test_stain_views_scale_the_optical_density(name: str, factor: float) -> None:
    densities = [-np.log10(images.numpy()) for images in (PATCHES, FIXED_VIEWS[name](PATCHES))]
    np.testing.assert_allclose(densities[1], factor * densities[0], rtol=1e-4, atol=1e-6)
    black = FIXED_VIEWS[name](torch.zeros(1, 3, 2, 2))
    assert torch.isfinite(black).all()
