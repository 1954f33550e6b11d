from __future__ import annotations

import numpy as np
import pytest
import torch
from skimage.color import hed_from_rgb, separate_stains
from torch.utils.data import DataLoader

from histo_monai.evaluation.baselines.colors import BOTH, COLORS, MEAN, STAINS, color_features


def _loader(patches: torch.Tensor) -> DataLoader:
    return DataLoader([(image, 0) for image in patches], batch_size=3)


def _patches(low: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(low, 256, (5, 1, 3, 8, 8), generator=generator, dtype=torch.uint8)


def test_features_are_the_mean_and_the_fractions_of_colors() -> None:
    patches = _patches()
    features = color_features(_loader(patches))
    for i, image in enumerate(patches[:, 0].numpy()):
        np.testing.assert_allclose(features[MEAN][i], image.mean(axis=(1, 2)) / 255)
        fractions = np.histogramdd(image.reshape(3, -1).T, bins=8, range=[(0, 256)] * 3)[0].ravel() / 64
        np.testing.assert_allclose(features[COLORS][i] ** 2, fractions, atol=1e-12)


def test_stains_are_those_that_scikit_image_separates() -> None:
    patches = _patches(low=1)  # It takes black for 10 ** -6, we for half a gray level.
    features = color_features(_loader(patches))
    for i, image in enumerate(patches[:, 0].numpy()):
        # Its densities are of base 10 ** 6.
        densities = 6 * separate_stains(image.transpose(1, 2, 0), hed_from_rgb)
        fractions = np.zeros((2, 32))
        for stain in range(2):
            for density in densities[..., stain].ravel():
                fractions[stain, int(min(max(density / 0.05, 0), 31))] += 1 / 64
        np.testing.assert_allclose(features[STAINS][i] ** 2, fractions.ravel(), atol=1e-12)


@pytest.mark.parametrize(("stain", "step"), [((0.65, 0.70, 0.29), 10), ((0.07, 0.99, 0.11), 10)])
def test_a_patch_of_one_stain_has_one_density_of_it_and_none_of_the_other(
    stain: tuple[float, float, float], step: int
) -> None:
    color = np.round(255 * 10.0 ** (-0.525 * np.array(stain))).astype(
        np.uint8
    )  # Density 0.525: the step from 0.5.
    patch = torch.from_numpy(np.broadcast_to(color[:, None, None], (1, 3, 4, 4)).copy())[None]
    both = color_features(_loader(patch))[STAINS][0].reshape(2, 32)
    of_it, of_other = both if stain[0] > 0.5 else both[::-1]
    assert of_it[step] == 1.0
    assert of_other[0] == 1.0


def test_black_and_white_are_counted_at_the_ends_and_all_features_stand_side_by_side() -> None:
    patches = torch.zeros(2, 1, 3, 4, 4, dtype=torch.uint8)
    patches[1] = 255
    features = color_features(_loader(patches))
    assert features[STAINS].shape == (2, 64)
    assert features[STAINS][1].nonzero()[0].tolist() == [0, 32]
    np.testing.assert_array_equal(features[BOTH], np.hstack([features[COLORS], features[STAINS]]))
    assert np.isfinite(features[BOTH]).all()


def test_the_order_of_pixels_cannot_matter() -> None:
    image = torch.randint(0, 256, (1, 1, 3, 16, 16), dtype=torch.uint8)
    shuffled = image.flatten(3)[..., torch.randperm(256)].view_as(image)
    first, second = color_features(_loader(image)), color_features(_loader(shuffled))
    for name in first:
        np.testing.assert_allclose(first[name], second[name])
