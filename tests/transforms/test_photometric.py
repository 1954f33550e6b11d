import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
import skimage.color
import torch
import torchvision.transforms.functional as reference

from histo_monai.transforms.operations.blur import Blur, gaussian_weights
from histo_monai.transforms.operations.brightness_contrast import BrightnessContrast
from histo_monai.transforms.operations.hue_saturation import HueSaturation
from histo_monai.transforms.operations.noise import Noise

NONE = torch.empty(0)


def adjust_hue_saturation(images, hues, ratios):
    return HueSaturation.with_torch(images, torch.stack([hues, ratios], dim=1), NONE)


def adjust_brightness(images, factors):
    return BrightnessContrast.with_torch(
        images, torch.stack([factors, torch.ones_like(factors)], dim=1), NONE
    )


def adjust_contrast(images, factors):
    return BrightnessContrast.with_torch(
        images, torch.stack([torch.ones_like(factors), factors], dim=1), NONE
    )


def add_noise(images, sigmas, starts, pool):
    return Noise.with_torch(images, torch.stack([sigmas, starts.float()], dim=1), pool)


def gaussian_blur(images, weights):
    return Blur.with_torch(images, weights, NONE)


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    random = torch.rand(4, 3, 24, 20, generator=generator)
    random[:, :, 0, :8] = torch.tensor(
        [[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1], [0.5, 0.5, 0.5], [1, 0, 1]]
    ).T
    return random


def hsv_by_scikit_image(image, hue, saturation):
    hsv = skimage.color.rgb2hsv(image.permute(1, 2, 0).double().numpy())
    hsv[..., 0] = (hsv[..., 0] + hue) % 1
    s = hsv[..., 1]
    hsv[..., 1] = s * (1 + saturation) if saturation < 0 else s * (1 + saturation * (1 - s))
    return skimage.color.hsv2rgb(hsv)


def test_hue_and_saturation_equal_scikit_image(images):
    hues, ratios = torch.tensor([0.1, -0.07, 0.5, -0.93]), torch.tensor([0.6, -0.4, 1.0, -1.0])
    ours = adjust_hue_saturation(images, hues, ratios)
    for image, result, hue, ratio in zip(images, ours, hues.tolist(), ratios.tolist(), strict=True):
        assert np.allclose(result.permute(1, 2, 0), hsv_by_scikit_image(image, hue, ratio), atol=2e-5)


def test_hue_alone_equals_torchvision(images):
    ours = adjust_hue_saturation(images, torch.full((4,), 0.1), torch.zeros(4))
    assert torch.allclose(ours, reference.adjust_hue(images, 0.1), atol=1e-5)


def test_hue_of_a_hundredth_turn_is_not_rounded_away(images):
    ours = adjust_hue_saturation(images, torch.full((4,), 0.01), torch.zeros(4))
    assert (ours - images).abs().amax(1)[:, 1:].median() > 1 / 255


def test_a_full_turn_and_no_saturation_change_nothing(images):
    for hue in (0.0, 1.0):
        ours = adjust_hue_saturation(images, torch.full((4,), hue), torch.zeros(4))
        assert torch.allclose(ours, images, atol=2e-6)


def test_saturation_minus_one_is_gray_at_the_same_value(images):
    ours = adjust_hue_saturation(images, torch.zeros(4), -torch.ones(4))
    assert torch.allclose(ours, images.amax(1, keepdim=True).expand_as(images), atol=1e-6)


def test_brightness_equals_torchvision_with_a_factor_per_image(images):
    factors = torch.tensor([0.0, 0.8, 1.0, 1.6])
    ours = adjust_brightness(images, factors)
    for image, result, factor in zip(images, ours, factors.tolist(), strict=True):
        assert torch.allclose(result, reference.adjust_brightness(image, factor), atol=1e-6)
    assert torch.equal(ours[2], images[2])


def test_contrast_equals_torchvision_with_a_factor_per_image(images):
    factors = torch.tensor([0.0, 0.8, 1.0, 1.6])
    ours = adjust_contrast(images, factors)
    for image, result, factor in zip(images, ours, factors.tolist(), strict=True):
        # torchvision rounds the weight of red to 0.2989: its gray is up to 1e-4 darker.
        assert torch.allclose(result, reference.adjust_contrast(image, factor), atol=1.1e-4)
    assert torch.allclose(ours[2], images[2], atol=1e-7)


def test_noise_is_gaussian_with_each_image_s_own_sigma():
    gray = torch.full((3, 3, 64, 64), 0.5)
    pool = torch.randn(4 * 3 * 64 * 64, generator=torch.Generator().manual_seed(0))
    sigmas = torch.tensor([0.02, -0.1, 0.0])
    noisy = add_noise(gray, sigmas, torch.tensor([0, 3 * 64 * 64, 5]), pool)
    deviation = (noisy - gray).flatten(1).double().numpy()
    assert deviation[0].std() == pytest.approx(0.02, rel=0.03)
    assert deviation[1].std() == pytest.approx(0.1, rel=0.03)
    assert not deviation[2].any()
    assert scipy.stats.kstest(deviation[0] / 0.02, "norm").pvalue > 0.01
    assert abs(np.corrcoef(deviation[0], deviation[1])[0, 1]) < 0.03
    assert abs(np.corrcoef(deviation[0][:-1], deviation[0][1:])[0, 1]) < 0.03


def test_noise_starts_at_each_image_s_own_place_in_the_pool():
    pool = torch.linspace(-1, 1, 100)
    noisy = add_noise(torch.full((2, 3, 2, 2), 0.5), torch.tensor([0.1, 0.2]), torch.tensor([7, 60]), pool)
    assert torch.allclose(noisy[0].flatten(), 0.5 + 0.1 * pool[7:19])
    assert torch.allclose(noisy[1].flatten(), 0.5 + 0.2 * pool[60:72])


@pytest.mark.parametrize("size", [3, 5, 7])
def test_blur_equals_torchvision(images, size):
    sigma = 0.3 * ((size - 1) / 2 - 1) + 0.8
    weights = gaussian_weights(torch.full((4,), size), 7).float()
    expected = reference.gaussian_blur(images, [size, size], [sigma, sigma])
    assert torch.allclose(gaussian_blur(images, weights), expected, atol=1e-5)


def test_blur_equals_scipy_with_a_kernel_per_image(images):
    weights = gaussian_weights(torch.tensor([7, 1, 3, 5]), 7)
    ours = gaussian_blur(images, weights.float())
    for image, result, half in zip(images, ours, weights.numpy(), strict=True):
        kernel = np.concatenate([half[:0:-1], half])
        assert kernel.sum() == pytest.approx(1)
        expected = scipy.ndimage.correlate1d(image.double().numpy(), kernel, axis=1, mode="mirror")
        expected = scipy.ndimage.correlate1d(expected, kernel, axis=2, mode="mirror")
        assert np.allclose(result, expected, atol=1e-6)
    assert torch.equal(ours[1], images[1])


def test_no_operation_touches_its_input(images):
    before = images.clone()
    one = torch.ones(4)
    adjust_hue_saturation(images, 0.1 * one, 0.5 * one)
    adjust_brightness(images, 1.1 * one)
    adjust_contrast(images, 1.1 * one)
    add_noise(images, 0.1 * one, torch.zeros(4, dtype=torch.int64), torch.randn(3 * 24 * 20))
    gaussian_blur(images, gaussian_weights(torch.full((4,), 5), 7).float())
    assert torch.equal(images, before)


def test_extreme_parameters_stay_between_zero_and_one(images):
    one = torch.ones(4)
    results = [
        adjust_hue_saturation(images, 0.37 * one, one),
        adjust_brightness(images, 3 * one),
        adjust_contrast(images, 3 * one),
        add_noise(images, one, torch.zeros(4, dtype=torch.int64), torch.randn(3 * 24 * 20)),
        gaussian_blur(images, gaussian_weights(torch.full((4,), 7), 7).float()),
    ]
    for result in results:
        assert result.isfinite().all()
        assert result.min() >= 0
        assert result.max() <= 1 + 1e-6
