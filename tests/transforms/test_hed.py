import numpy as np
import skimage.color
import torch

from histo_monai.transforms.operations.hed import Hed, hed_map
from histo_monai.utils.stains import DARKEST, RGB_FROM_HED


def perturbed(images, factors, shifts):
    columns = torch.cat([part.flatten(1) for part in hed_map(factors, shifts)], dim=1)
    return Hed.with_torch(images, columns, torch.empty(0))


def test_the_stain_vectors_are_those_of_scikit_image():
    assert np.allclose(RGB_FROM_HED, skimage.color.rgb_from_hed)


def test_hed_perturbation_equals_unmixing_changing_and_mixing_with_scikit_image():
    random = np.random.default_rng(0)
    # Colors that are mixtures of the three stains: scikit-image clips negative concentrations, ours needs not to.
    density = random.uniform(0.05, 0.6, (8, 8, 3))
    rgb = 10 ** -(density @ skimage.color.rgb_from_hed)
    factor, shift = random.uniform(-0.3, 0.3, 3), random.uniform(-0.04, 0.2, 3)
    # scikit-image counts density in units of six decades: log(rgb) / log(1e-6).
    stains = skimage.color.rgb2hed(rgb) * 6
    expected = skimage.color.hed2rgb((stains * (1 + factor) + shift) / 6)
    images = torch.from_numpy(rgb.transpose(2, 0, 1)[None]).float()
    ours = perturbed(images, torch.from_numpy(factor[None]).float(), torch.from_numpy(shift[None]).float())
    assert np.allclose(ours[0].permute(1, 2, 0), expected, atol=1e-5)


def test_hed_perturbation_equals_a_naive_loop_over_pixels():
    images = torch.rand(2, 3, 5, 4, generator=torch.Generator().manual_seed(0))
    factors = torch.tensor([[0.03, -0.02, 0.01], [-0.3, 0.2, 0.1]])
    shifts = torch.tensor([[0.03, 0.01, -0.03], [0.1, -0.1, 0.05]])
    ours = perturbed(images, factors, shifts)
    mixing = np.array(RGB_FROM_HED)
    for n, y, x in np.ndindex(2, 5, 4):
        density = -np.log10(np.maximum(images[n, :, y, x].double().numpy(), 0.5 / 255))
        concentration = np.linalg.solve(mixing.T, density)
        changed = concentration * (1 + factors[n].double().numpy()) + shifts[n].double().numpy()
        expected = np.minimum(10 ** -(mixing.T @ changed), 1)
        assert np.allclose(ours[n, :, y, x], expected, atol=1e-5)


def test_no_perturbation_changes_nothing():
    images = torch.rand(3, 3, 16, 16) * (1 - DARKEST) + DARKEST
    assert torch.allclose(perturbed(images, torch.zeros(3, 3), torch.zeros(3, 3)), images, atol=2e-6)


def test_a_paper_sized_perturbation_moves_every_stained_pixel_but_never_far():
    images = torch.rand(1, 3, 16, 16) * 0.6 + 0.2
    change = (perturbed(images, torch.full((1, 3), 0.035), torch.full((1, 3), 0.035)) - images).abs()
    assert change.amax(1).min() > 1 / 255
    assert change.max() < 0.15


def test_black_stays_dark_and_clear_glass_takes_up_exactly_the_added_stain():
    images = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1).expand(2, 3, 2, 2).contiguous()
    added = np.array(RGB_FROM_HED).sum(axis=0) * 0.035
    for sign, glass in ((1, 10**-added), (-1, np.ones(3))):
        ours = perturbed(images, torch.full((2, 3), 0.035 * sign), torch.full((2, 3), 0.035 * sign))
        assert ours.min() >= 0
        assert ours[0].max() < 0.01
        assert np.allclose(ours[1, :, 0, 0], glass, atol=1e-5)
